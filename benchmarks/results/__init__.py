"""What each method of the papers does to stand-in models: one table, ``docs/results.md``."""
