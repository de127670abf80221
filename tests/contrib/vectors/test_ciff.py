import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import StorageError
from lsr_prod_contrib.vectors import Rules, ciff, ciff_write, find_vector_files, read_vectors
from lsr_prod_contrib.vectors.ciff import parse_list
from lsr_prod_contrib.vectors.ciff_write import postings_message, write_ciff
from lsr_prod_contrib.vectors.npz import CsrBlock
from tests.contrib.vectors.ciff_messages import CLASSES, delimited, header, parse, postings_list, record

# Two documents, two terms, written by hand from the published definition: "lock" in document 0 (impact 3) and 1
# (impact 300), "数据" in document 1 (impact 1).
BY_HAND = bytes.fromhex(
    "06 0801 1002 1802"  # header: version 1, two lists, two documents
    "16 0a046c6f636b 1002 18af02 22021003 2205080110ac02"  # df 2, cf 303; the gap 0 is not written
    "12 0a06e695b0e68dae 1001 1801 220408011001"
    "05 120161 1803"  # record of document 0: its number is not written
    "08 0801 120162 18ad02"
)


def read(folder, data, rules, name="a.ciff"):
    path = folder / name
    path.write_bytes(data)
    [file] = find_vector_files([str(path)], "ciff")
    return [row for _, row in read_vectors(file, rules)]


def as_dict(row, rules):
    return {rules.vocabulary.terms[t]: float(w) for t, w in zip(row.terms, row.weights, strict=True)}


def test_bytes_written_by_hand_from_the_definition_are_read(rules, tmp_path):
    found = read(tmp_path, BY_HAND, rules)
    assert [row.doc_id for row in found] == ["a", "b"]
    assert [as_dict(row, rules) for row in found] == [{"lock": 3.0}, {"lock": 300.0, "数据": 1.0}]
    assert [as_dict(row, rules) for row in read(tmp_path, gzip.compress(BY_HAND), rules, "b.ciff.gz")] == [
        as_dict(row, rules) for row in found
    ]


VECTORS = st.lists(
    st.dictionaries(st.integers(0, 13), st.one_of(st.integers(1, 300), st.just(2**31 - 1)), max_size=8), max_size=12
)


def blocks_of(vectors, rows=5):
    for start in range(0, len(vectors), rows):
        some = [sorted(vector.items()) for vector in vectors[start : start + rows]]
        pairs = [pair for row in some for pair in row]
        yield CsrBlock(
            [f"d{start + i}" for i in range(len(some))],
            np.array([len(row) for row in some], np.int64),
            np.array([term for term, _ in pairs], np.int32),
            np.array([weight for _, weight in pairs], np.int32),
        )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VECTORS)
def test_written_file_is_the_same_for_protobuf_and_is_read_again(tmp_path_factory, rules, vectors):
    folder = tmp_path_factory.mktemp("ciff")
    terms = rules.vocabulary.terms
    assert write_ciff(folder / "a.ciff", blocks_of(vectors), terms, "ours")[0] == len(vectors)
    data = (folder / "a.ciff").read_bytes()
    first, lists, records = parse(data)
    assert delimited(first, *lists, *records) == data  # byte for byte what the library writes
    expected = {
        term: [(number, vector[t]) for number, vector in enumerate(vectors) if t in vector]
        for t, term in enumerate(terms)
    }
    expected = {term: postings for term, postings in expected.items() if postings}
    assert [one.term for one in lists] == sorted(expected, key=str.encode)
    for one in lists:
        assert one == postings_list(one.term, expected[one.term])
    total = sum(sum(vector.values()) for vector in vectors)
    assert (first.num_docs, first.total_docs, first.total_terms_in_collection) == (len(vectors), len(vectors), total)
    assert first.description == "ours"
    assert [(one.docid, one.collection_docid) for one in records] == [(i, f"d{i}") for i in range(len(vectors))]
    found = read(folder, data, rules, "b.ciff")
    assert [as_dict(row, rules) for row in found] == [
        {terms[t]: float(np.float32(weight)) for t, weight in vector.items()} for vector in vectors
    ]


@pytest.mark.parametrize(("limit", "lists"), [(45, 0), (61, 1)])
def test_list_longer_than_a_message_is_refused_before_the_file_exists(rules, tmp_path, monkeypatch, limit, lists):
    vectors = [{0: 200} for _ in range(8)]  # a list of 62 bytes; no list of 8 postings has less than 46
    monkeypatch.setattr(ciff_write, "MESSAGE_LIMIT", limit)
    written = []
    monkeypatch.setattr(ciff_write, "postings_message", lambda *given: written.append(1) or postings_message(*given))
    terms = ["x", *rules.vocabulary.terms[1:]]
    with pytest.raises(StorageError, match=r"'x' has 8 documents.*set vectors\.format to jsonl, npz or parquet"):
        write_ciff(tmp_path / "a.ciff", blocks_of(vectors), terms, "")
    assert (len(written), list(tmp_path.iterdir())) == (lists, [])


def test_ranges_of_documents_do_not_change_the_vectors(rules, tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    vectors = [{int(t): int(rng.integers(1, 99)) for t in rng.choice(14, 4, replace=False)} for _ in range(300)]
    write_ciff(tmp_path / "a.ciff", blocks_of(vectors), rules.vocabulary.terms, "")
    data = (tmp_path / "a.ciff").read_bytes()
    expected = [as_dict(row, rules) for row in read(tmp_path, data, rules, "b.ciff")]
    monkeypatch.setattr(ciff, "_PART_BYTES", 400)
    monkeypatch.setattr(ciff, "_ROWS", 7)
    assert [as_dict(row, rules) for row in read(tmp_path, data, rules, "c.ciff")] == expected
    assert expected == [{rules.vocabulary.terms[t]: float(w) for t, w in vector.items()} for vector in vectors]


def test_postings_in_every_form_of_the_wire_format_are_read():
    postings = [(0, 1), (1, 200), (700, 1)]
    plain = postings_list("x", postings).SerializeToString()
    assert postings_message("x", np.array([0, 1, 700]), np.array([1, 200, 1])) == plain
    head = CLASSES["PostingsList"](term="x", df=5).SerializeToString()
    swapped = b"\x22\x04\x10\x05\x08\x02"  # the frequency before the gap
    longer = b"\x22\x07\x08\x01\x10\x07\x2a\x01z"  # a field that the definition does not have
    found = parse_list(head + plain[plain.index(b"\x22") :] + swapped + longer)
    assert found.documents.tolist() == [0, 1, 700, 702, 703]
    assert found.frequencies.tolist() == [1, 200, 1, 5, 7]


def test_field_behind_a_short_posting_is_no_part_of_it():
    head = CLASSES["PostingsList"](term="x", df=2).SerializeToString()
    found = parse_list(head + b"\x22\x04\x08\x01\x10\x03" + b"\x22\x02\x08\x01" + b"\x10\x02")
    assert (found.documents.tolist(), found.frequencies.tolist()) == ([1, 2], [3, 0])


TWO = [postings_list("lock", [(0, 3), (1, 4)]), record(0, "a"), record(1, "b")]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([b"\xff"], "a number is cut"),
        ([header(1, 2, version=2), *TWO], "version 2"),
        ([header(-1, 2), *TWO], "declares -1 lists"),
        ([header(1, 3), *TWO], "the file ends before document record 2"),
        ([header(1, 1), *TWO], "has document 1 of 1"),
        ([header(1, 2), *TWO, record(2, "c")], "messages follow"),
        ([header(1, 2), postings_list("lock", [(0, 3)], df=2), *TWO[1:]], "declares 2 documents and has 1"),
        ([header(1, 2), postings_list("lock", [(1, 3), (0, 3)]), *TWO[1:]], "do not rise"),
        ([header(1, 2), TWO[0], record(1, "b"), record(0, "a")], "record of document 0 is that of 1"),
        ([header(1, 2), b"\x22\x7f", *TWO[1:]], "leaves its message"),
        ([header(1, 2), b"\x23", *TWO[1:]], "wire type 3"),
        ([header(1, 2), b"\x0a\x01\xff", *TWO[1:]], "not UTF-8"),
        ([header(1, 2**31 - 1), TWO[0]], "the file ends before document record 0"),
        ([header(2**31 - 1, 2), TWO[0]], "the file ends before postings list 1"),
    ],
)
def test_file_that_contradicts_itself_ends_with_one_damaged_row(rules, tmp_path, messages, words):
    *_, last = read(tmp_path, delimited(*messages), rules)
    assert isinstance(last, BadRow)
    assert last.reason == "damaged_file"
    assert words in last.detail


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\x05\x08", b"\xff\xff\xff\xff\x7f", b"\xff" * 30, BY_HAND[:-1], BY_HAND[:30]]
)
def test_cut_file_and_impossible_lengths_end_with_one_damaged_row(rules, tmp_path, data):
    *_, last = read(tmp_path, data, rules)
    assert isinstance(last, BadRow)
    assert last.reason == "damaged_file"


def test_documents_with_unknown_terms_bad_weights_and_ids_are_bad_rows(rules, tmp_path):
    lists = [
        postings_list("lock", [(0, 3), (1, -4), (2, 5), (3, 1)]),
        postings_list("elsewhere", [(2, 1)]),
        postings_list("lock", [(3, 1)]),
    ]
    records = [record(0, "a"), record(1, "b"), record(2, "c"), record(3, "d"), record(4, ""), record(5, "empty")]
    data = delimited(header(3, 6), *lists, *records)
    found = read(tmp_path, data, rules)
    reasons = [row.reason if isinstance(row, BadRow) else as_dict(row, rules) for row in found]
    assert reasons == [{"lock": 3.0}, "bad_weight", "unknown_term", "repeated_term", "missing_id", {}]
    assert "'elsewhere' is not in the vocabulary" in found[2].detail
    found = read(tmp_path, data, Rules(rules.vocabulary, drop_unknown=True))
    assert as_dict(found[2], rules) == {"lock": 5.0}
    assert found[2].unknown == 1
