"""What every command does at a terminal: read options, print tables, end with a line and an exit code."""
