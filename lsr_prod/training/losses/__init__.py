"""Ranking losses, one per module; ``table.LOSSES`` lists them by the name that the configuration uses."""
