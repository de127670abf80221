"""Open an index: its settings, and the version that answers."""
