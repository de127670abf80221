"""Layouts of the artifacts that packages exchange, with numpy and pyarrow only.

``sparse`` (vectors in memory), ``card`` (the encoder card), ``bundle`` (an exported encoder), ``table`` (the sparse
table), ``index``, ``shard`` and ``publication`` (an index). ``digest`` names them. Nothing here writes files.
"""
