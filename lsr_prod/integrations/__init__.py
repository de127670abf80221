"""Adapters for tools that use an index or a model: evaluation harnesses, frameworks of applications, traces."""
