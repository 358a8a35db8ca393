"""What the house does: each file one verb. They know the store by its protocols only."""
