"""Benchmarks of search: time, memory and recall per query against peers."""
