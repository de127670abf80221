"""Compiled kernels and their working memory. Importing this package does not import numba."""
