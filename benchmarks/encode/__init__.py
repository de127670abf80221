"""Benchmarks of encoding: documents per CPU second, memory and precision."""
