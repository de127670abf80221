"""Score training rows with a teacher, for distillation: a slice of the rows becomes one part of rows of kind scores.

``teacher`` opens a teacher: a cross-encoder or a dense encoder (``transformers``), or an encoder of sparse vectors.
``job`` scores the rows, writes them, and runs the whole job.
"""
