"""Benchmarks: each script answers one question as a ratio against a peer or a baseline in one run."""
