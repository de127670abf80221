import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.encoding.isolation.isolated import read_message, vectors_from, vectors_to, write_message
from lsr_prod.storage.formats.sparse import SparseBatch


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 5), max_size=20))
def test_vectors_survive_a_round_trip(lengths: list[int]):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    random = np.random.default_rng(len(lengths))
    terms = random.integers(0, 1 << 20, offsets[-1]).astype(np.int32)
    vectors = SparseBatch(offsets, terms, random.random(offsets[-1], np.float32))
    pipe = io.BytesIO()
    write_message(pipe, vectors_to(vectors))
    write_message(pipe, {"next": pa.array([1])})
    pipe.seek(0)
    back = vectors_from(read_message(pipe))
    for name in ("offsets", "terms", "weights"):
        assert np.array_equal(getattr(back, name), getattr(vectors, name))
        assert getattr(back, name).dtype == getattr(vectors, name).dtype
    assert read_message(pipe).to_pydict() == {"next": [1]}


@settings(deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_survive_a_round_trip(texts: list[str]):
    pipe = io.BytesIO()
    write_message(pipe, {"texts": pa.array(texts, pa.large_string())})
    pipe.seek(0)
    assert read_message(pipe)["texts"].to_pylist() == texts


def test_reading_a_truncated_message_raises_eof_error():
    pipe = io.BytesIO()
    write_message(pipe, {"texts": pa.array(["a text"], pa.large_string())})
    whole = pipe.getvalue()
    for cut in range(len(whole)):
        with pytest.raises(EOFError):
            read_message(io.BytesIO(whole[:cut]))
