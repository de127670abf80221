"""Queries: vectors, request options, filters and term weights."""
