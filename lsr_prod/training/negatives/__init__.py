"""Mine hard negatives for training pairs with a published index: each slice of the pairs becomes one part of rows.

``pairs`` reads a slice, ``known`` collects all positives of a query, ``index`` searches, ``rules`` selects the
negatives, ``part`` writes them, and ``job`` runs the whole job.
"""

__all__: list[str] = []
