"""Layouts of the artifacts that packages exchange, with numpy and pyarrow only.

``sparse`` (vectors in memory), ``bundle`` (an exported encoder and its card), ``table`` (the sparse table), ``index``
and ``shard`` (an index). ``digest`` names them. Nothing here writes files.
"""
