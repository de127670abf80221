"""Choice of the impact scale before the first wave, from a sample of documents all over the corpus."""

import itertools
import math
from collections.abc import Iterator, Sequence

from lsr_prod.corpus.pinned_file import check_pinned
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.slices import Slice
from lsr_prod.encoding.cells.batches import encode_batches
from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE
from lsr_prod.encoding.plans.plan import Plan
from lsr_prod.tables.impact_scale import ImpactScale, impact_scale

__all__ = ["probe_scale", "spread_slices"]

_PLACES = 16  # at most, each costs one opened file and its first block


def probe_scale(
    reader: Reader,
    slices: Sequence[Slice],
    encoder: TextEncoder,
    *,
    documents: int,
    bits: int,
    step: float | None = None,
) -> ImpactScale:
    """Encode documents from the start of each slice and choose the impact scale for their weights.

    The vectors have the number of terms that is stored. A document that the model fails on is left out here; its wave
    quarantines it.

    Args:
        reader: of the plan.
        slices: where to read, as ``spread_slices`` picks them.
        encoder: of the bundle, in a child process that documents may crash.
        documents: size of the probe; the same number from each slice, more from large slices if small ones end.
        bits: width of an impact.
        step: weight of one impact unit, if it is configured; then only its error is measured.
    """
    texts = _sample(reader, slices, documents)
    vectors, failed = encode_batches(encoder, texts, batch_size=ISOLATED_BATCH_SIZE)
    return impact_scale(vectors.weights, bits, documents=len(texts) - len(failed), step=step)


def spread_slices(plan: Plan, documents: int) -> list[Slice]:
    """Return slices at even distances over the whole plan: a source may be sorted by length, topic or language.

    Args:
        plan: the first plan of a table.
        documents: size of the probe.

    Returns:
        At most 16 and at most ``documents`` slices, in order; always the same for a plan.
    """
    total = plan.slice_table.num_rows
    count = min(total, documents, _PLACES)
    wanted = {(2 * i + 1) * total // (2 * count) for i in range(count)}
    return [piece for i, piece in enumerate(plan.slices()) if i in wanted]


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
