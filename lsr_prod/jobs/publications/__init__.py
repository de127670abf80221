"""Subcommands about the publications of an index: history, pins, catalog, differences."""
