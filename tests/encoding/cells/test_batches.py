import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.corpus.source_rows import RAW_LIMIT
from lsr_prod.encoding.cells.cell import BATCH_SIZE, Failure, encode_batches
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE, IsolatedEncoder
from lsr_prod.errors import (
    ArtifactError,
    EncoderBrokenError,
    EncoderCrashedError,
    EncoderRaisedError,
    EncoderTimeoutError,
    StorageError,
)
from lsr_prod.inference import BundleEncoder
from lsr_prod.storage.formats.sparse import SparseBatch
from tests.encoding.poison_encoder import poison_factory, term_of


class Poisoned:
    """A real encoder that raises for a text with the word POISON, as a broken graph would."""

    def __init__(self, encoder: BundleEncoder) -> None:
        self.encoder, self.calls = encoder, 0

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        self.calls += 1
        if any("POISON" in text for text in texts):
            raise RuntimeError("the graph failed")
        return self.encoder.encode(texts, kind="document", top_k=16, batch_tokens=1024)


def test_failing_documents_are_found_by_halving_and_the_others_encoded(tiny_bundle: Path):
    texts = [f"fox {i}" if i not in (0, 7, 8, 19) else f"POISON {i}" for i in range(20)]
    encoder = Poisoned(BundleEncoder(tiny_bundle))
    vectors, failed = encode_batches(encoder, texts)
    assert failed == dict.fromkeys((0, 7, 8, 19), Failure("encode_failed", "RuntimeError: the graph failed"))
    assert encoder.calls <= 2 * len(texts)
    good = [text for text in texts if "POISON" not in text]
    expected = encoder.encode(good)
    assert len(vectors) == len(good)
    for i in range(len(good)):
        assert set(vectors.row(i)[0]) == set(expected.row(i)[0])


def test_no_texts_give_no_vectors(tiny_bundle: Path):
    vectors, failed = encode_batches(Poisoned(BundleEncoder(tiny_bundle)), [])
    assert (len(vectors), failed) == (0, {})


ERRORS = {
    "encode_failed": [ValueError("y" * 9999), EncoderRaisedError("y" * 9999)],
    "encoder_crashed": [EncoderCrashedError("y" * 9999)],
    "encoder_timeout": [EncoderTimeoutError("y" * 9999)],
}


class Numbered:
    """Encodes text ``i`` as term ``i``; raises for some texts and returns a NaN or infinite weight for others."""

    def __init__(self, raising: dict[int, Exception], broken: dict[int, float], batch_size: int = BATCH_SIZE) -> None:
        self.raising, self.broken, self.batch_size, self.failures, self.calls = raising, broken, batch_size, 0, 0

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        assert len(texts) <= self.batch_size
        if [*texts] == ["word"]:  # the check that the encoder still works
            return SparseBatch(np.arange(2), np.zeros(1, np.int32), np.ones(1, np.float32))
        self.calls += 1
        numbers = [int(text) for text in texts]
        for number in numbers:
            if number in self.raising:
                self.failures += 1
                raise self.raising[number]
        weights = np.array([self.broken.get(number, 1.0) for number in numbers], np.float32)
        return SparseBatch(np.arange(len(numbers) + 1), np.array(numbers, np.int32), weights)


@settings(deadline=None)
@given(
    n=st.integers(0, 5000),
    raising=st.dictionaries(
        st.integers(0, 4999), st.sampled_from([error for errors in ERRORS.values() for error in errors]), max_size=6
    ),
    broken=st.dictionaries(st.integers(0, 4999), st.sampled_from([np.nan, np.inf]), max_size=4),
    batch_size=st.sampled_from([1, 32, 33, 2048]),
)
def test_texts_that_do_not_fail_are_encoded_in_order(
    n: int, raising: dict[int, Exception], broken: dict[int, float], batch_size: int
):
    encoder = Numbered(raising, broken, batch_size)
    vectors, failed = encode_batches(encoder, [str(i) for i in range(n)], batch_size=batch_size)
    expected = {i for i in raising.keys() | broken.keys() if i < n}
    assert failed.keys() == expected
    assert vectors.terms.tolist() == [i for i in range(n) if i not in expected]
    assert len(vectors) == n - len(expected)
    assert np.isfinite(vectors.weights).all()
    assert encoder.calls <= max(1, 2 * n)
    assert encoder.failures <= len(raising) * (math.ceil(math.log2(batch_size)) + 1)
    for i, failure in failed.items():
        if i in raising:
            assert raising[i] in ERRORS[failure.reason]
            assert failure.detail.startswith("ValueError: yyy" if isinstance(raising[i], ValueError) else "yyy")
        else:
            assert failure.reason == "encode_failed"
            assert failure.detail.startswith("FloatingPointError: ")
        assert len(failure.detail) <= RAW_LIMIT


def test_broken_encoder_raises_at_the_first_call():
    encoder = Numbered({1: EncoderBrokenError("the model does not open")}, {})
    with pytest.raises(EncoderBrokenError, match="does not open"):
        encode_batches(encoder, ["0", "1", "2"])
    assert encoder.calls == 1


class Dying:
    """Encodes some texts, then fails on every input, as after an error of its device."""

    def __init__(self, texts: int) -> None:
        self.left = texts

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        if len(texts) > self.left:
            self.left = 0
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.left -= len(texts)
        return SparseBatch(np.arange(len(texts) + 1), np.zeros(len(texts), np.int32), np.ones(len(texts), np.float32))


class Suspicious:
    """Fails on every document; counts documents and plain words, and answers a word as it is told."""

    def __init__(self, word: Exception | float) -> None:
        self.word, self.documents, self.words = word, 0, 0

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        if [*texts] != ["word"]:
            self.documents += 1
            raise RuntimeError("the graph failed")
        self.words += 1
        if isinstance(self.word, Exception):
            raise self.word
        return SparseBatch(np.arange(2), np.zeros(1, np.int32), np.full(1, self.word, np.float32))


def test_word_is_encoded_after_every_twenty_failures_in_a_row_and_at_the_end():
    encoder = Suspicious(1.0)
    vectors, failed = encode_batches(encoder, ["text"] * 45, batch_size=1)
    assert (len(vectors), len(failed), encoder.documents, encoder.words) == (0, 45, 45, 3)


@pytest.mark.parametrize(
    ("word", "error"),
    [
        (np.nan, EncoderBrokenError),
        (RuntimeError("CUDA error"), EncoderBrokenError),
        (ArtifactError("the bundle is missing"), ArtifactError),
        (StorageError("the disk fails"), StorageError),
    ],
)
def test_encoder_that_fails_on_a_word_stops_at_the_twentieth_document(word: Exception | float, error: type[Exception]):
    encoder = Suspicious(word)
    with pytest.raises(error):
        encode_batches(encoder, ["text"] * 45, batch_size=1)
    assert (encoder.documents, encoder.words) == (20, 1)


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_weight_that_is_not_finite_is_a_failure_of_its_document(weight: float):
    vectors, failed = encode_batches(Numbered({}, {1: weight}), ["0", "1", "2"])
    assert vectors.terms.tolist() == [0, 2]
    assert failed.keys() == {1}


@pytest.mark.parametrize(("left", "texts"), [(0, 1), (0, 3), (32, 40), (32, 500)])
def test_failing_device_raises_encoder_broken_error_instead_of_blaming_documents(left: int, texts: int):
    with pytest.raises(EncoderBrokenError, match=r"documents in a row failed, and so did a plain word \(CUDA error"):
        encode_batches(Dying(left), ["text"] * texts, batch_size=32)


@pytest.mark.long
def test_each_kind_of_failure_has_its_reason_and_bounded_process_starts():
    texts = [f"document {i}" for i in range(100)]
    poison = {3: "SEGFAULT", 31: "ABORT", 32: "HOLD", 60: "RAISE", 61: "EXIT", 98: "NAN"}
    for i, word in poison.items():
        texts[i] = f"document {i} {word}"
    size = ISOLATED_BATCH_SIZE // 4  # fewer halves, fewer starts
    with IsolatedEncoder(poison_factory(), timeout_s=5) as encoder:  # 2 s pass on a busy machine
        vectors, failed = encode_batches(encoder, texts, batch_size=size)
        starts = encoder.starts
    assert vectors.terms.tolist() == [term_of(text) for i, text in enumerate(texts) if i not in poison]
    assert {i: failure.reason for i, failure in failed.items()} == {
        3: "encoder_crashed",
        31: "encoder_crashed",
        32: "encoder_timeout",
        60: "encode_failed",
        61: "encoder_crashed",
        98: "encode_failed",
    }
    assert "SIGSEGV" in failed[3].detail
    assert failed[60].detail == "RuntimeError: the graph failed"
    # Each of the four that end a process does so in its batch, in the halves of the batch, and at most twice alone.
    assert starts <= 1 + 4 * (math.log2(size) + 2)
