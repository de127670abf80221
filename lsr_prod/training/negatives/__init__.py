"""Mine hard negatives for training pairs with a published index: each slice of the pairs becomes one part of rows.

``inputs`` reads a slice, ``mine`` searches, adds the negatives that ``rules`` selects and writes the part, and ``job``
runs the whole job.
"""
