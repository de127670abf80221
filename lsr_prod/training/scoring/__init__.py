"""Score training rows with a teacher, for distillation: a slice of the rows becomes one part of rows of kind scores.

``teacher`` opens a teacher: a ``cross_encoder``, or a ``two_encoder`` of ``dense`` or ``sparse`` vectors.
``scored_row`` scores rows, ``part`` writes them, and ``job`` runs the whole job.
"""

__all__: list[str] = []
