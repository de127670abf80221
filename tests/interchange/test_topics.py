import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.interchange.read import find_vector_files, read_vectors
from lsr_prod.interchange.topics import topic_vectors, write_topics
from tests.interchange.conftest import TERMS
from tests.interchange.test_jsonl import IDS


@settings(max_examples=60, deadline=None)
@given(
    topics=st.lists(
        st.tuples(IDS, st.dictionaries(st.sampled_from(TERMS), st.integers(1, 300), max_size=6)), max_size=5
    ),
    ending=st.sampled_from([".tsv", ".tsv.gz"]),
)
def test_what_is_written_is_read_back(rules, topics, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"topics{ending}"
        assert write_topics(path, topics) == len(topics)
        (file,) = find_vector_files([str(path)], "tsv")
        found = [row for _, row in read_vectors(file, rules)]
    assert [row.doc_id for row in found] == [topic_id for topic_id, _ in topics]
    for row, (_, vector) in zip(found, topics, strict=True):
        assert {TERMS[t]: w for t, w in zip(row.terms, row.weights.tolist(), strict=True)} == vector


def test_bad_lines_have_their_reason(rules):
    data = b"1\tlock  lock \r\n\nno tab\n\tlock\n2\tnowhere\n3\t\xff\n4\t\n"
    found = [getattr(row, "reason", None) or row.weights.tolist() for _, row in topic_vectors(io.BytesIO(data), rules)]
    assert found == [[2.0], "wrong_field_count", "missing_id", "unknown_term", "invalid_utf8", []]


@pytest.mark.parametrize(
    ("topic_id", "vector", "words"),
    [
        ("a\tb", {"lock": 1}, "holds U\\+0009"),
        ("a", {"two words": 1}, "write JSONL"),
        ("a", {"": 1}, "write JSONL"),
        ("a", {"lock": 1.5}, "integers of 0 or more"),
        ("a", {"lock": -1}, "integers of 0 or more"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tmp_path, topic_id, vector, words):
    with pytest.raises(ValueError, match=words):
        write_topics(tmp_path / "t.tsv", [(topic_id, vector)])
    assert list(tmp_path.iterdir()) == []
