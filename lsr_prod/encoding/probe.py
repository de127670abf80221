"""Choice of the impact scale from a sample of documents all over the slices of a plan."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from lsr_prod.corpus.pinned_file import check_pinned
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.slices import Slice
from lsr_prod.encoding.cells.batches import encode_batches
from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE
from lsr_prod.encoding.plans.plan import Plan
from lsr_prod.tables.impact_scale import ImpactScale, impact_scale

_PLACES = 16  # at first, each costs one opened file and its first block


def probe_scale(
    reader: Reader,
    plan: Plan,
    encoder: TextEncoder,
    *,
    documents: int,
    bits: int,
    step: float | None = None,
    floor: float = 0.0,
) -> ImpactScale:
    """Encode documents from all over the slices of a plan and choose the impact scale for their weights.

    The vectors have the number of terms that is stored. A document that the model fails on is left out here; its wave
    quarantines it. The probe has fewer documents than asked for only if the plan has no more.
    """
    weights, encoded = [np.empty(0, np.float32)], 0
    for slices in spread_slices(plan, documents):
        texts = _sample(reader, slices, documents - encoded)
        vectors, failed = encode_batches(encoder, texts, batch_size=ISOLATED_BATCH_SIZE)
        weights.append(vectors.weights)
        encoded += len(texts) - len(failed)
        if encoded >= documents:
            break
    return impact_scale(np.concatenate(weights), bits, documents=encoded, step=step, floor=floor)


def spread_slices(plan: Plan, documents: int) -> Iterator[list[Slice]]:
    """Yield slices at even distances over the whole plan: a source may be sorted by length, topic or language.

    Yields:
        At most 16 and at most ``documents`` slices, in order; then, for a caller that needs more documents, further
        slices until every slice was yielded once. Always the same for a plan.
    """
    total = plan.slice_table.num_rows
    count = min(total, documents, _PLACES)
    seen: set[int] = set()
    while len(seen) < total:
        wanted = {(2 * i + 1) * total // (2 * count) for i in range(count)} - seen
        yield [piece for i, piece in enumerate(plan.slices()) if i in wanted]
        seen |= wanted
        count = min(total, max(2 * count, documents))


def _sample(reader: Reader, slices: Sequence[Slice], documents: int) -> list[str]:
    texts: list[str] = []
    by_size = sorted(slices, key=lambda piece: piece.size)  # larger slices make up for small ones that end early
    for left, piece in zip(range(len(by_size), 0, -1), by_size, strict=True):
        quota = math.ceil((documents - len(texts)) / left)
        texts += itertools.islice(_texts(reader, piece), quota)
        check_pinned(piece.file, reader.options)  # a slice that is not read to its end is not verified there
    return texts


def _texts(reader: Reader, piece: Slice) -> Iterator[str]:
    """Yield the texts of the good rows of a slice; the file is read only as far as needed."""
    for rows in reader.read(piece):
        for text, reason in zip(rows["text"].to_pylist(), rows["reason"].to_pylist(), strict=True):
            if reason is None:
                yield text
