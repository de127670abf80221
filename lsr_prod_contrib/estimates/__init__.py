"""Estimates from measured runs: hours, storage and cost of encoding a corpus; rows, hours and memory of a training."""
