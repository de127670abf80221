"""Benchmarks of training: steps, recipes and what a method gains."""
