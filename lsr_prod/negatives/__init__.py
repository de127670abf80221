"""Hard negatives of training pairs, found by an index of ours: a slice of the pairs becomes one part of rows.

``pairs`` reads a slice, ``known`` remembers every positive of a query, ``search`` asks the index, ``rules`` chooses,
``part`` writes, ``job`` runs it all.
"""

__all__: list[str] = []
