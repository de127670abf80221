"""Figures of output vocabularies: the head, overlap with a target, and the casing of terms by that of input tokens."""
