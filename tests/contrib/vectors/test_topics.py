import gzip
import io
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod_contrib.vectors.read import find_vector_files, read_vectors, topic_vectors
from tests.contrib.vectors.conftest import TERMS
from tests.contrib.vectors.test_jsonl import IDS


@settings(max_examples=60, deadline=None)
@given(
    topics=st.lists(
        st.tuples(IDS, st.dictionaries(st.sampled_from(TERMS), st.integers(1, 300), max_size=6)), max_size=5
    ),
    ending=st.sampled_from([".tsv", ".tsv.gz"]),
)
def test_topics_of_a_file_are_read_back(rules, topics, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"topics{ending}"
        lines = [f"{doc_id}\t{' '.join(t for t, w in vector.items() for _ in range(w))}\n" for doc_id, vector in topics]
        data = "".join(lines).encode()
        path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
        (file,) = find_vector_files([str(path)], "tsv")
        found = [row for _, row in read_vectors(file, rules)]
    assert [row.doc_id for row in found] == [topic_id for topic_id, _ in topics]
    for row, (_, vector) in zip(found, topics, strict=True):
        assert {TERMS[t]: w for t, w in zip(row.terms, row.weights.tolist(), strict=True)} == vector


def test_bad_lines_have_a_reason(rules):
    data = b"1\tlock  lock \r\n\nno tab\n\tlock\n2\tnowhere\n3\t\xff\n4\t\n"
    found = [getattr(row, "reason", None) or row.weights.tolist() for _, row in topic_vectors(io.BytesIO(data), rules)]
    assert found == [[2.0], "wrong_field_count", "missing_id", "unknown_term", "invalid_utf8", []]
