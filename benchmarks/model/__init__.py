"""Benchmarks of models: which families work, from loading to search."""
