"""The impact scale, fixed before the first wave from the first good documents of the corpus."""

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from lsr_prod.encoding.actor import encode_texts
from lsr_prod.encoding.plan import Slice
from lsr_prod.encoding.read import Reader
from lsr_prod.inference import BundleEncoder

__all__ = ["impact_step", "probe_step"]

HEADROOM = 1.05
"""The largest weight of the probe times this is the largest impact; what lies above is clipped and counted."""

_GRID = 1 << 16


def probe_step(
    reader: Reader,
    slices: Sequence[Slice],
    bundle: Path,
    *,
    documents: int,
    store_k: int,
    bits: int,
    batch_tokens: int,
    threads: int,
) -> float:
    """Encode the first ``documents`` good documents and return the weight of one impact unit.

    Args:
        reader: of the plan.
        slices: all slices of the plan, in order.
        bundle: the encoder.
        documents: size of the probe.
        store_k: terms kept of a document.
        bits: width of an impact.
        batch_tokens: tokens of a batch, padding included.
        threads: ONNX Runtime threads.
    """
    texts = list(itertools.islice(_texts(reader, slices), documents))
    encoder = BundleEncoder(bundle, threads=threads)
    vectors, _ = encode_texts(encoder, texts, top_k=store_k, batch_tokens=batch_tokens)
    return impact_step(float(vectors.weights.max(initial=0.0)), bits)


def impact_step(largest: float, bits: int) -> float:
    """The step for a largest weight: with headroom, rounded up to a multiple of 2**-16.

    The grid keeps float noise between two machines out of the step. Without any weight the largest counts as 1:
    there is then no vector that the step could touch.
    """
    top = (1 << bits) - 1
    return max(math.ceil((largest or 1.0) * HEADROOM / top * _GRID), 1) / _GRID


def _texts(reader: Reader, slices: Sequence[Slice]) -> Iterator[str]:
    for piece in slices:
        for rows in reader.read(piece):
            for text, reason in zip(rows["text"].to_pylist(), rows["reason"].to_pylist(), strict=True):
                if reason is None:
                    yield text
