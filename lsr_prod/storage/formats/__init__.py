"""Layouts of the artifacts that packages exchange, with numpy and pyarrow only.

``sparse`` (vectors in memory), ``bundle_format`` (an exported encoder and its card), ``table_format`` (the sparse
table), ``index_format`` and ``shard_format`` (an index). ``digests`` names them. Nothing here writes files.
"""
