"""The words of the house, pure: no I/O, no clock, no settings. Time comes in as an argument."""
