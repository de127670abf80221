"""Benchmarks of vocabularies: initialization, transfer and head rescaling."""
