"""Tests that all positives of a query are collected from all of the data."""

from collections import defaultdict
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.negatives.inputs import KnownPositives, cut_pairs, survey_slice
from lsr_prod.training.negatives.rules import Fingerprint, id_key, text_key
from tests.training.negatives.conftest import settings, write_lines

NAMES = st.sampled_from(["a", "b", "c", "d e"])


def known_of(files: list[Path]) -> KnownPositives:
    sections = [settings("index", file) for file in files]
    return KnownPositives.of(
        survey_slice(piece, section, {}) for section in sections for piece in cut_pairs(section, {})
    )


def test_positives_are_collected_from_all_files_and_spellings_of_a_query(tmp_path: Path):
    first = write_lines(
        tmp_path / "1.jsonl",
        [{"query": "a  query", "pid": "1"}, {"query": "alone", "pid": "9", "positive": "text"}, {"query": ""}],
    )
    second = write_lines(
        tmp_path / "2.jsonl", [{"query": "a query ", "positive": "a  text"}, {"query": "a query", "pid": "2"}]
    )
    known = known_of([first, second])
    keys, sketches = known.of_query("a query")
    assert keys == {id_key("1"), id_key("2"), text_key("a text")}
    assert sketches == [Fingerprint.of("A text")]
    assert known.of_query("alone") == (frozenset(), [])  # its only row has the positive
    assert known.of_query("absent") == (frozenset(), [])
    assert len(known.queries) == 3


def test_survey_counts_every_row(tmp_path: Path):
    path = write_lines(tmp_path / "rows.jsonl", [{"query": "q", "pid": "1"}, {"query": " "}, "{", {"query": "q"}])
    section = settings("index", path)
    (piece,) = cut_pairs(section, {})
    survey = survey_slice(piece, section, {})
    assert survey.rows == 4
    assert survey.bad == {"empty_query": 1, "broken_json": 1, "missing_positive": 1}
    assert len(survey.rows_of) == 1


@given(st.lists(st.tuples(NAMES, NAMES), max_size=20))
def test_known_positives_match_a_dictionary(pairs: list[tuple[str, str]]):
    import tempfile

    expected = defaultdict(list)
    for query, doc_id in pairs:
        expected[query].append(id_key(doc_id))
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"query": query, "pid": doc_id} for query, doc_id in pairs]
        known = known_of([write_lines(Path(folder) / "rows.jsonl", rows)] if rows else [])
    for query, ids in expected.items():
        assert known.of_query(query) == (frozenset(ids) if len(ids) > 1 else frozenset(), [])
