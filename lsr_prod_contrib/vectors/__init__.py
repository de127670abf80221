"""Vectors in the formats of search engines and benchmarks: CIFF, and CSR files of BigANN."""
