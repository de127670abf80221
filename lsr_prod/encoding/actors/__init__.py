"""Encoder actors: one actor, where actors run, and the pool that gives them blocks."""
