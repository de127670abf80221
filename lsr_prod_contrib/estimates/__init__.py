"""Estimates of hours, storage and cost of encoding a corpus, from measured runs."""
