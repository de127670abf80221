"""Jobs that make evaluation sets."""
