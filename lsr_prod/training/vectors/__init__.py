"""Sparse vectors in training: pruned to their heaviest terms, and compared by dot product or cosine."""
