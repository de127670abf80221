import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.corpus.source_rows import BadRow
from lsr_prod_contrib.vectors import jsonl as module
from lsr_prod_contrib.vectors.jsonl import json_vectors, vector_line, write_jsonl
from lsr_prod_contrib.vectors.read import find_vector_files, read_vectors
from tests.contrib.vectors.conftest import TERMS

IDS = st.text(min_size=1, max_size=8).filter(
    lambda text: not any(c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in text)
)
WEIGHTS = st.integers(1, 2**24) | st.floats(2**-90, 2**120, width=32)
VECTORS = st.dictionaries(st.sampled_from(TERMS), WEIGHTS, max_size=8)


def read(data: bytes, rules):
    return [row for _, row in json_vectors(io.BytesIO(data), rules)]


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.tuples(IDS, VECTORS, st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)), max_size=6
    ),
    ending=st.sampled_from([".jsonl", ".jsonl.gz", ".json"]),
)
def test_written_vectors_are_read_back(rules, rows, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{ending}"
        assert write_jsonl(path, rows) == len(rows)
        (file,) = find_vector_files([str(path)], "jsonl")
        found = [row for _, row in read_vectors(file, rules)]
    assert [(row.doc_id, row.contents) for row in found] == [(doc_id, contents) for doc_id, _, contents in rows]
    for row, (_, vector, _) in zip(found, rows, strict=True):
        terms = [TERMS[term] for term in row.terms]
        assert dict(zip(terms, row.weights.tolist(), strict=True)) == {t: np.float32(w) for t, w in vector.items()}


@pytest.mark.parametrize(
    ("line", "reason", "doc_id"),
    [
        (b"{", "broken_json", None),
        (b'{"id": "a", "vector": {"lock": 1}', "broken_json", None),
        (b'{"id": "a", "vector": {"lock": ' + b"9" * 5000 + b"}}", "broken_json", None),
        (b"[" * 100_000, "broken_json", None),
        (b'"a"', "not_an_object", None),
        (b'[{"id": "a"}]', "not_an_object", None),
        (b'{"id": "\xff", "vector": {}}', "invalid_utf8", None),
        (b'{"id": "\\ud800", "vector": {}}', "invalid_utf8", None),
        (b'{"id": "a", "contents": "\\ud800", "vector": {}}', "invalid_utf8", "a"),
        (b'{"vector": {}}', "missing_id", None),
        (b'{"id": "", "vector": {}}', "missing_id", None),
        (b'{"id": true, "vector": {}}', "wrong_type", None),
        (b'{"id": 1.5, "vector": {}}', "wrong_type", None),
        (b'{"id": "a\\n", "vector": {}}', "control_characters", None),
        (b'{"id": "a"}', "missing_vector", "a"),
        (b'{"id": "a", "vector": null}', "missing_vector", "a"),
        (b'{"id": "a", "vector": [1]}', "wrong_type", "a"),
        (b'{"id": "a", "vector": {}, "contents": 1}', "wrong_type", "a"),
        (b'{"id": "a", "vector": {"lock": 1, "lock": 2}}', "repeated_term", None),
        (b'{"id": "a", "vector": {"nowhere": 1}}', "unknown_term", "a"),
        (b'{"id": "a", "vector": {"lock": NaN}}', "bad_weight", "a"),
        (b'{"id": "a", "vector": {"lock": -Infinity}}', "bad_weight", "a"),
    ],
)
def test_bad_line_has_a_reason_and_reading_continues(rules, line, reason, doc_id):
    good = b'{"id": "b", "vector": {"lock": 1}}\n'
    bad, row = read(line + b"\n" + good, rules)
    assert isinstance(bad, BadRow)
    assert (bad.reason, bad.doc_id) == (reason, doc_id)
    assert bad.raw.encode("utf-8")[:20] == line.decode("utf-8", "replace").encode()[:20]
    assert row.doc_id == "b"


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(
        st.binary(max_size=30)
        | st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4) | st.sampled_from(TERMS),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["id", "vector", "contents", *TERMS]), inner, max_size=4)
            ),
            max_leaves=8,
        ).map(lambda value: json.dumps(value).encode()),
        max_size=6,
    )
)
def test_arbitrary_lines_are_neither_lost_nor_end_the_file(rules, lines):
    data = b"\n".join(lines)
    found = read(data, rules)
    assert len(found) == sum(bool(line.strip()) for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"))


def test_blank_lines_byte_order_marks_and_crlf_are_accepted(rules):
    data = b'\xef\xbb\xbf{"id": 7, "vector": {"lock": 1}}\r\n\r\n  \n{"id": "b", "vector": {}}'
    assert [row.doc_id for row in read(data, rules)] == ["7", "b"]


def test_line_above_the_limit_is_bad_and_not_in_memory(rules, monkeypatch):
    monkeypatch.setattr(module, "LINE_LIMIT", 100)
    data = json.dumps({"id": "a", "contents": "x" * 200, "vector": {}}).encode() + b"\n" + vector_line("b", {"lock": 1})
    bad, row = read(data, rules)
    assert bad.reason == "row_too_long"
    assert row.doc_id == "b"


def test_integers_stay_integers_and_nan_is_rejected():
    assert vector_line("a", {"Ω": 3}, "t") == '{"id": "a", "contents": "t", "vector": {"Ω": 3}}\n'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        vector_line("a", {"Ω": float("nan")})


def test_a_repeated_term_among_many_is_found_in_one_pass(rules):
    """Looking for each key among all others would take minutes."""
    keys = [*(f'"k{number}": 1' for number in range(200_000)), '"k0": 1']
    (bad,) = read(('{"id": "a", "vector": {' + ", ".join(keys) + "}}\n").encode(), rules)
    assert (bad.reason, bad.detail) == ("repeated_term", "'k0' stands twice in an object")
