from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.encoding.actor import encode_texts
from lsr_prod.encoding.probe import impact_step
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.inference import BundleEncoder


class Poisoned:
    """A real encoder that a text with the word POISON makes fail, as a broken graph would."""

    def __init__(self, encoder: BundleEncoder) -> None:
        self.encoder, self.calls = encoder, 0

    def encode(self, texts: Sequence[str], **settings) -> SparseBatch:
        self.calls += 1
        if any("POISON" in text for text in texts):
            raise RuntimeError("the graph failed")
        return self.encoder.encode(texts, **settings)


def test_a_poison_document_is_found_and_the_others_are_encoded(tiny_bundle: Path):
    texts = [f"fox {i}" if i not in (0, 7, 8, 19) else f"POISON {i}" for i in range(20)]
    encoder = Poisoned(BundleEncoder(tiny_bundle))
    vectors, failed = encode_texts(encoder, texts, top_k=16, batch_tokens=1024)
    assert failed == dict.fromkeys((0, 7, 8, 19), "RuntimeError: the graph failed")
    assert encoder.calls <= 2 * len(texts)
    good = [text for text in texts if "POISON" not in text]
    expected = encoder.encode(good, kind="document", top_k=16, batch_tokens=1024)
    assert len(vectors) == len(good)
    for i in range(len(good)):
        assert set(vectors.row(i)[0]) == set(expected.row(i)[0])


def test_no_text_is_no_vector(tiny_bundle: Path):
    vectors, failed = encode_texts(BundleEncoder(tiny_bundle), [], top_k=16, batch_tokens=1024)
    assert (len(vectors), failed) == (0, {})


@given(largest=st.floats(0.001, 100))
def test_the_step_covers_the_largest_weight_with_headroom(largest: float):
    step = impact_step(largest, 8)
    assert largest * 1.05 <= step * 255 * (1 + 1e-12)
    assert step * 255 <= largest * 1.05 + 255 / 65536


def test_without_a_weight_there_is_a_step():
    assert impact_step(0.0, 8) == pytest.approx(1.05 / 255, abs=2**-16)
