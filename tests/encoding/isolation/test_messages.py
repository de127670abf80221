import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.encoding.isolation.messages import read_message, vectors_from, vectors_to, write_message
from lsr_prod.formats.sparse import SparseBatch


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 5), max_size=20), facts=st.dictionaries(st.text(), st.integers()))
def test_vectors_and_facts_come_back_as_they_were(lengths: list[int], facts: dict[str, int]):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    random = np.random.default_rng(len(lengths))
    terms = random.integers(0, 1 << 20, offsets[-1]).astype(np.int32)
    vectors = SparseBatch(offsets, terms, random.random(offsets[-1], np.float32))
    pipe = io.BytesIO()
    write_message(pipe, vectors_to(vectors), facts)
    write_message(pipe, {}, {"next": 1})
    pipe.seek(0)
    columns, found = read_message(pipe)
    back = vectors_from(columns)
    assert found == facts
    for name in ("offsets", "terms", "weights"):
        assert np.array_equal(getattr(back, name), getattr(vectors, name))
        assert getattr(back, name).dtype == getattr(vectors, name).dtype
    assert read_message(pipe)[1] == {"next": 1}


@settings(deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_text_comes_back(texts: list[str]):
    pipe = io.BytesIO()
    write_message(pipe, {"texts": pa.array(texts, pa.large_string())}, {})
    pipe.seek(0)
    assert read_message(pipe)[0]["texts"].to_pylist() == texts


def test_a_message_that_breaks_off_is_an_end_and_no_message():
    pipe = io.BytesIO()
    write_message(pipe, {"texts": pa.array(["a text"], pa.large_string())}, {})
    whole = pipe.getvalue()
    for cut in range(len(whole)):
        with pytest.raises(EOFError):
            read_message(io.BytesIO(whole[:cut]))
