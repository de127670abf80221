"""Output of sentence-transformers' SparseEncoder: torch tensors and decoded terms. torch is never imported."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.encoding.interchange.vectors import Rules, VectorRow, Vocabulary, as_batch, row_of_ids, row_of_tokens
from lsr_prod.errors import SourceError
from lsr_prod.formats.sparse import SparseBatch


def batch_of_tensor(embeddings: Any, vocabulary: Vocabulary) -> SparseBatch:
    """Convert vectors that ``encode_document`` or ``encode_query`` returned.

    Args:
        embeddings: torch tensor [n, V] or [V], sparse COO, sparse CSR or dense, on any device; or a list of
            tensors [V].
        vocabulary: vocabulary of the bundle of the same model.

    Raises:
        SourceError: the number of columns differs from the vocabulary, or a weight is negative, NaN or infinite.
    """
    if isinstance(embeddings, list | tuple):
        return SparseBatch.concatenate([batch_of_tensor(one, vocabulary) for one in embeddings])
    shape = tuple(embeddings.shape)
    if len(shape) not in (1, 2) or shape[-1] != len(vocabulary):
        raise SourceError(
            f"the tensor has shape {shape}, the vocabulary {len(vocabulary)} terms; give [n, V] of its model"
        )
    rows, terms, weights = _entries(embeddings)
    count = shape[0] if len(shape) == 2 else 1
    order = np.argsort(rows, kind="stable")
    bounds = np.searchsorted(rows[order], np.arange(count + 1))
    rules = Rules(vocabulary)
    return as_batch(
        [
            _row(i, row_of_ids(str(i), terms[part], weights[part], None, rules))
            for i in range(count)
            for part in [order[bounds[i] : bounds[i + 1]]]
        ]
    )


def batch_of_decoded(decoded: Sequence[Any], vocabulary: Vocabulary) -> SparseBatch:
    """Convert vectors that ``decode`` returned.

    Args:
        decoded: pairs (term, weight) of each vector, or a mapping; wrap the result for one vector in a list.
        vocabulary: vocabulary of the bundle of the same model.

    Raises:
        SourceError: a term is unknown or repeated, or a weight is negative, NaN or infinite.
    """
    rules = Rules(vocabulary)
    return as_batch([_row(i, row_of_tokens(str(i), _mapping(i, one), None, rules)) for i, one in enumerate(decoded)])


def _mapping(i: int, decoded: Mapping[str, float] | Iterable[tuple[str, float]]) -> dict[str, float]:
    pairs = list(decoded.items() if isinstance(decoded, Mapping) else decoded)
    made = {term: float(weight) for term, weight in pairs}
    if len(made) < len(pairs):
        raise SourceError(f"vector {i} has a term twice; give each once")
    return made


def _row(i: int, row: VectorRow | tuple[str, str]) -> VectorRow:
    if isinstance(row, VectorRow):
        return row
    raise SourceError(f"vector {i}: {row[1]}; give what the model of this vocabulary returns")


def _entries(tensor: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return row, column and value of every entry."""
    tensor = tensor.detach()
    layout = str(tensor.layout)
    if layout == "torch.sparse_csr":
        bounds = _numpy(tensor.crow_indices())
        rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        return rows, _numpy(tensor.col_indices()), _numpy(tensor.values().double())
    if layout == "torch.strided":
        tensor = tensor.to_sparse()
    elif layout != "torch.sparse_coo":
        raise SourceError(f"the tensor has layout {layout}; give sparse COO, sparse CSR or a dense one")
    tensor = tensor.coalesce()
    places = _numpy(tensor.indices())
    rows = places[0] if len(places) == 2 else np.zeros(places.shape[1], np.int64)
    return rows, places[-1], _numpy(tensor.values().double())


def _numpy(tensor: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.cpu().numpy()
    return array
