"""Benchmarks of evaluation."""
