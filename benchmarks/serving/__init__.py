"""Served search under load from a generator that is not ours."""
