"""The prompt of ``lsr-prod search``, through a pipe."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lsr_prod.jobs.search import search
from tests.indexing.corpus import Doc, encode_corpus, make_index


def prompt(index: Path, *lines: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lsr_prod", "search", str(index), *options],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.long
def test_search_answers_queries_and_runs_commands(text_index):
    ran = prompt(text_index, "wait for a lock", ":k 1", ":threshold 0.5", "json string", ":quit", "never read")
    assert (ran.returncode, ran.stderr) == (0, "")
    before, after = ran.stdout.split("k=1 threshold=0.0")
    assert before.startswith("11 documents · publication 1 · version ")
    assert "terms: " in before
    assert "  1. " in before
    assert "threading.Lock" in before
    assert " + " in before
    assert "  2. " in before
    assert "  2. " not in after
    assert "json." in after
    assert "match " in after
    assert "never read" not in ran.stdout


def test_search_with_words_shows_parts_of_both_scores(tiny_bundle, tmp_path):
    corpus = encode_corpus(tiny_bundle, {"lock": "A lock is held.", "event": "Threads wait for an event."})
    make_index(tmp_path, corpus, bundle=tiny_bundle, bm25=True)
    ran = prompt(tmp_path, "wait for a lock", ":words 0", "wait for a lock", options=["--words", "2"])
    assert (ran.returncode, ran.stderr) == (0, "")
    hybrid, terms = ran.stdout.split("words=0.0")
    assert '"lock" ' in hybrid
    assert "terms and words: " in hybrid
    assert "terms and words)" in hybrid
    assert '"lock"' not in terms


def test_search_shows_stored_numbers_with_the_text(tiny_bundle, tmp_path):
    encoded = encode_corpus(tiny_bundle, {"lock": "A lock is held."})["lock"]
    corpus = {"lock": Doc(encoded.terms, encoded.text, {"year": "2020"})}
    make_index(tmp_path, corpus, bundle=tiny_bundle, attributes={"year": "int64"})
    ran = prompt(tmp_path, "lock")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "A lock is held. · 2020" in ran.stdout


def test_search_exits_1_for_words_without_postings_of_words(tmp_path, capsys):
    make_index(tmp_path, {"a": Doc({1: 1})}, vocabulary_size=3)
    assert search.run([str(tmp_path), "--words", "1"]) == 1
    assert "index.bm25" in capsys.readouterr().err


@pytest.mark.long
def test_search_shows_only_documents_with_the_words_of_the_filter(text_index):
    lines = ["wait for a lock", ":filter json? >>>", "wait for a lock", ":filter", "lock", ":filter ???", "lock"]
    ran = prompt(text_index, *lines, options=["--filter", "locks (that"])
    assert (ran.returncode, ran.stderr) == (0, "")
    lock, json, every, none = ran.stdout.split("k=5 threshold=0.0 qk=all words=0.0")
    assert "threading.Lock" in lock
    assert "json." not in lock
    assert json.startswith(" filter='json? >>>'\n")
    assert "json." in json
    assert "threading.Lock" not in json
    assert "threading.Lock" in every
    assert "\n0 of 11 documents" in none


def test_search_reports_wrong_input_and_continues(text_index):
    ran = prompt(text_index, ":k many", ":threshold 2", ":nonsense", "", "lock")
    assert ran.returncode == 0
    assert "! 'many' is not a number" in ran.stdout
    assert "! overlap_threshold=2.0 is not possible" in ran.stdout
    assert ":threshold X" in ran.stdout
    assert "threading.Lock" in ran.stdout


def test_query_that_is_not_utf_8_is_refused_alone(text_index):
    ran = subprocess.run(
        [sys.executable, "-m", "lsr_prod", "search", str(text_index)],
        input=b"wait for a lock\nwait for a caf\xe9\njson string\n:filter caf\xe9\n",
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},  # strict, as in en_US.UTF-8
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    before, after = ran.stdout.split(b"! the query ")
    assert b"threading.Lock" in before
    assert b"json." in after


def test_search_exits_1_with_one_line_without_index(tmp_path, capsys):
    assert search.run([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("lsr-prod search failed: PublicationError: ")


def test_search_exits_1_for_impossible_threshold(tmp_path, monkeypatch, capsys):
    make_index(tmp_path, {"a": Doc({1: 1})}, vocabulary_size=3)
    assert search.run([str(tmp_path), "--threshold", "7"]) == 1
    assert "overlap_threshold" in capsys.readouterr().err
