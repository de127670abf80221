"""What leaves the machine, and which files are left on it."""
