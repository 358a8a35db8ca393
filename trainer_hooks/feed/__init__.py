"""What is fed to the model, looked at beside the training thread."""
