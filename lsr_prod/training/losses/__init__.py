"""Losses of the training: the ranking losses, the overlap term, and the scores that all of them share."""
