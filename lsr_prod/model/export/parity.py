"""Parity check: the graph must return the vectors of the torch model and, above all, its rankings.

Both sides encode every text as a document and as a query, and each query ranks all texts by brute force. With
inference-free queries, documents rank documents.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from lsr_prod import errors, logs
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.folders import file_exists, open_text
from lsr_prod.storage.formats import bundle_format, sparse

log = logs.get_log(__name__)

MOST_TEXTS = 512
_DEPTH = 10
_TIE = 1e-4  # relative difference of scores that count as a tie


@dataclass(frozen=True, slots=True)
class Parity:
    """Differences between a bundle and its model."""

    texts: int  # number of compared texts
    # mean over texts of shared terms / terms of the longer vector, both pruned to top-k; of an int8 bundle the smaller
    # one of two: texts in batches, and one at a time
    overlap: float
    weight_difference: float  # largest difference of a weight
    # mean over queries of the share of the bundle's first 10 texts that are among torch's first 10; a text that
    # ties with torch's tenth text counts as one of them
    top10_overlap: float


def check_parity(encoder: SparseEncoder, bundle: BundleEncoder, texts: Sequence[str], *, min_overlap: float) -> Parity:
    """Compare a bundle with its model, and refuse it if it differs too much."""
    parity = measure_parity(encoder, bundle, texts)
    log.info("compared the bundle with torch", extra={"fields": asdict(parity)})
    least_top10 = 1.0 if bundle.bundle.precision == "fp32" else min_overlap
    for name, value, least in (
        ("vectors", parity.overlap, min_overlap),
        ("rankings", parity.top10_overlap, least_top10),
    ):
        if not value >= least:
            raise errors.ParityError(
                f"over {parity.texts} texts the {name} of the exported graph share {value:.4f} with torch's, less than "
                f"{least}; the largest difference of a weight is {parity.weight_difference:.4f}"
            )
    return parity


def measure_parity(encoder: SparseEncoder, bundle: BundleEncoder, texts: Sequence[str]) -> Parity:
    """Encode ``texts`` with both sides and compare vectors and rankings."""
    top_k = bundle.top_k
    query_kind: bundle_format.Kind = "query" if encoder.card.query_encoder == "model" else "document"
    kinds: tuple[bundle_format.Kind, bundle_format.Kind] = ("document", query_kind)
    ours = [encoder.encode(texts, kind, batch_size=8).top(top_k) for kind in kinds]
    theirs = [bundle.encode(texts, kind=kind) for kind in kinds]
    compared = [theirs[0]]
    if bundle.bundle.precision == "int8":  # the scale of activations depends on the texts of a batch
        compared.append(bundle.encode(texts, kind="document", batch_tokens=1))
    size = encoder.card.vocabulary_size
    (our_documents, our_queries), (their_documents, their_queries) = (
        [batch.dense(size) for batch in side] for side in (ours, theirs)
    )
    return Parity(
        texts=len(texts),
        overlap=min(_overlap(ours[0], batch) for batch in compared),
        weight_difference=float(np.abs(our_documents - their_documents).max(initial=0.0)),
        top10_overlap=_top_overlap(our_queries @ our_documents.T, their_queries @ their_documents.T),
    )


def read_parity_texts(path: str | None, options: Mapping[str, str] | None = None) -> list[str]:
    """Return the sample: the first 512 texts of a JSONL file with the field text, or the built-in sentences."""
    path = str(Path(__file__).with_name("parity_texts.jsonl")) if path is None else path
    return read_texts(path, field="export.parity_texts", most=MOST_TEXTS, options=options)


def read_texts(
    path: str, *, field: str, most: int | None = None, options: Mapping[str, str] | None = None
) -> list[str]:
    """Read the texts of a JSONL file with the field text."""
    if not file_exists(path, options):
        raise errors.ConfigError(field, f"there is no file at {path}", "give a JSONL file with the field text")
    try:
        with open_text(path, options) as file:
            lines = list(islice((line for line in file if line.strip()), most))
        texts = [json.loads(line)["text"] for line in lines]
        json.dumps(texts, ensure_ascii=False).encode()  # half of a surrogate pair, which no tokenizer takes
    except (ValueError, KeyError, TypeError) as error:
        raise errors.ConfigError(field, f"{path} is not JSONL with the field text", "fix the file") from error
    if not texts or not all(isinstance(text, str) for text in texts):
        raise errors.ConfigError(field, f"{path} has lines without a text", "give one text per line")
    return texts


def _overlap(ours: sparse.SparseBatch, theirs: sparse.SparseBatch) -> float:
    shares = []
    for i in range(len(ours)):
        mine, yours = ours.row(i)[0], theirs.row(i)[0]
        longer = max(len(mine), len(yours))
        shares.append(len(np.intersect1d(mine, yours)) / longer if longer else 1.0)
    return float(np.mean(shares))


def _top_overlap(ours: np.typing.NDArray[np.float32], theirs: np.typing.NDArray[np.float32]) -> float:
    depth = min(_DEPTH, ours.shape[1])
    top = np.argsort(-theirs, axis=1, kind="stable")[:, :depth]  # [n, depth]
    tenth = -np.sort(-ours, axis=1)[:, depth - 1 : depth]  # [n, 1]
    return float(np.mean(np.take_along_axis(ours, top, 1) >= tenth - _TIE * np.maximum(1.0, tenth)))
