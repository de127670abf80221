"""Mine hard negatives for training pairs with a published index: each slice of the pairs becomes one part of rows.

``inputs`` reads a slice, ``index`` searches, ``rules`` selects the negatives, ``mine`` adds them to the pairs and
writes them, and ``job`` runs the whole job.
"""
