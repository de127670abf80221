"""Vectors and runs in the formats that the field uses, streaming in both directions.

``jsonl`` (Anserini's vectors), ``topics`` (its queries), ``npz`` (CSR matrices of scipy) and ``tensors``
(sentence-transformers) are formats of vectors, ``vectors`` judges one, ``read`` finds files and reads them into memory.
``table_import`` makes a sparse table of them, ``table_export`` writes one out; ``job`` is the entry of both. ``runs``
has TREC's and BEIR's runs.
"""

from lsr_prod.interchange.jsonl import write_jsonl
from lsr_prod.interchange.read import VectorBatch, find_vector_files, read_batches, read_vectors
from lsr_prod.interchange.runs import ranked, read_beir_run, read_run, write_beir_run, write_run
from lsr_prod.interchange.tensors import batch_of_decoded, batch_of_tensor
from lsr_prod.interchange.topics import write_topics
from lsr_prod.interchange.vectors import Rules, VectorRow, Vocabulary, as_rows

__all__ = [
    "Rules",
    "VectorBatch",
    "VectorRow",
    "Vocabulary",
    "as_rows",
    "batch_of_decoded",
    "batch_of_tensor",
    "find_vector_files",
    "ranked",
    "read_batches",
    "read_beir_run",
    "read_run",
    "read_vectors",
    "write_beir_run",
    "write_jsonl",
    "write_run",
    "write_topics",
]
