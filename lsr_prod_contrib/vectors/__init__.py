"""Vectors in the formats of other tools, streaming in both directions.

Formats of vectors are ``jsonl`` (Anserini's vectors), ``topics`` (Anserini's queries), ``npz`` (CSR matrices of
scipy), ``ciff``, ``csr`` (BigANN) and ``tensors`` (sentence-transformers). ``vector`` validates one vector,
``read`` finds and reads files. ``table_import`` writes a sparse table, ``table_export`` reads one; ``job`` runs both.
"""

from lsr_prod_contrib.vectors.jsonl import write_jsonl
from lsr_prod_contrib.vectors.read import VectorBatch, find_vector_files, read_batches, read_vectors
from lsr_prod_contrib.vectors.vector import (
    Rules,
    VectorRow,
    Vocabulary,
    as_rows,
    batch_of_decoded,
    batch_of_tensor,
)

__all__ = [
    "Rules",
    "VectorBatch",
    "VectorRow",
    "Vocabulary",
    "as_rows",
    "batch_of_decoded",
    "batch_of_tensor",
    "find_vector_files",
    "read_batches",
    "read_vectors",
    "write_jsonl",
]
