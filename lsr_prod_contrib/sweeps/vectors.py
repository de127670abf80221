"""Vectors of a sweep: every text is encoded once per bundle, in slices that are stored under the digest of their input.

A slice depends on the bundle, the texts, and for queries weighted by document frequencies on the documents, so sweeps
that share an output folder share slices, and an interrupted sweep continues with the missing ones.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lsr_prod.errors import ArtifactError
from lsr_prod.evaluation.vector_evaluation import encode_with_bundle
from lsr_prod.storage import Store
from lsr_prod.storage.folders import open_bundle
from lsr_prod.storage.formats.bundle_format import EncoderCard, Kind
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.storage.formats.sparse import SparseBatch

_FORMAT = 1  # raise it when equal texts get other vectors
_FOLDER = "vectors"


@dataclass(frozen=True, slots=True)
class VectorSlice:
    """Texts that one task encodes."""

    name: str  # path of its vectors in the output folder
    kind: Kind  # queries or documents
    start: int  # position of its first text
    stop: int  # position after its last text


def slices_of(
    bundle: str, card: EncoderCard, documents: Sequence[str], queries: Sequence[str], size: int
) -> list[VectorSlice]:
    """Cut the texts of a collection into slices."""
    whole = digest_json(documents) if card.query_encoder == "idf" else None
    cut: list[VectorSlice] = []

    def add(kind: Kind, texts: Sequence[str], most: int, weighted_by: str | None) -> None:
        for start in range(0, len(texts), most):
            stop = min(start + most, len(texts))
            digest = digest_json([_FORMAT, bundle, kind, weighted_by, texts[start:stop]])
            cut.append(VectorSlice(f"{_FOLDER}/{digest}.vectors", kind, start, stop))

    add("document", documents, size, None)
    add("query", queries, size if whole is None else max(1, len(queries)), whole)
    return cut


def encode_slice(
    piece: VectorSlice, bundle: str, documents: Sequence[str], queries: Sequence[str], output: Store
) -> int:
    """Encode a slice with one thread and store its vectors.

    Returns:
        Number of encoded texts.
    """
    folder, _ = open_bundle(bundle, output.options)
    texts = (documents if piece.kind == "document" else queries)[piece.start : piece.stop]
    vectors = encode_with_bundle(folder, texts, piece.kind, documents)
    buffer = io.BytesIO()
    for array in (vectors.offsets, vectors.terms, vectors.weights):
        np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    output.put_new(piece.name, buffer.getvalue())
    return len(texts)


def read_slices(output: Store, names: Sequence[str]) -> SparseBatch:
    """Return the vectors of slices, in their order."""
    return SparseBatch.concatenate([_read(output, name) for name in names])


def _read(output: Store, name: str) -> SparseBatch:
    data = output.get(name)
    if data is None:
        raise ArtifactError(f"{output.uri} lacks {name}; run the sweep again")
    try:
        buffer = io.BytesIO(data)
        return SparseBatch(*(np.lib.format.read_array(buffer, allow_pickle=False) for _ in range(3)))
    except (ValueError, OSError) as error:
        raise ArtifactError(f"{output.uri}/{name} is damaged ({error}); delete it, then run again") from error
