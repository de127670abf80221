"""Secrets in settings and in the environment, searched for in everything that jobs write."""
