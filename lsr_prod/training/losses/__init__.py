"""Losses of the training: ranking losses over shared scores, and the overlap term."""
