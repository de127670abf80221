"""The embedded default deployment: real text that is on every machine, and a small real checkpoint."""
