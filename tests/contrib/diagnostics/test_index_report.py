"""Diagnosis of a published index against its documents."""

import json
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.errors import QueryError
from lsr_prod.jobs.command import main
from lsr_prod.search import Searcher
from lsr_prod_contrib.diagnostics.index_report import diagnose_index, sample_documents, sample_vectors
from tests.search.conftest import TEXTS, text_index

__all__ = ["text_index"]


@pytest.fixture(scope="module")
def searcher(text_index: Path):
    with Searcher.open(text_index) as opened:
        yield opened


def test_whole_sample_has_the_vectors_of_every_document(searcher: Searcher):
    snapshot = searcher.snapshot
    vectors = sample_vectors(snapshot, sample_documents(snapshot, 10_000))
    assert len(vectors) == searcher.documents
    assert np.bincount(vectors.terms, minlength=len(searcher.vocabulary)).tolist() == (
        snapshot.document_frequencies.tolist()
    )
    step = snapshot.version.impact_step
    assert vectors.weights.max() <= np.float32(255 * step)


def test_sample_is_spread_over_the_shards(searcher: Searcher):
    places = sample_documents(searcher.snapshot, 4)
    assert sum(map(len, places.values())) == 4
    assert len(places) == 2
    assert sample_documents(searcher.snapshot, 4)[0].tolist() == places[0].tolist()


def test_dead_terms_and_postings_are_those_of_the_postings(searcher: Searcher):
    found = diagnose_index(searcher.snapshot, sample=100)
    dead = [term for term in searcher.vocabulary if searcher.document_frequency(term) == 0]
    assert found["dead"]["list"] == dead
    lengths = [searcher.document_frequency(term) for term in searcher.vocabulary]
    assert found["postings"]["mean"] == pytest.approx(np.mean(lengths))
    assert found["postings"]["curve"][0] == (1, max(lengths))
    assert found["activated"]["texts"] == len(TEXTS)


def test_expanded_terms_of_stored_texts(searcher: Searcher):
    found = diagnose_index(searcher.snapshot, sample=100, fields=["text"])
    words = {word.strip(".,").lower() for text in TEXTS.values() for word in text.split()}
    never = {term["term"] for term in found["expansion"]["most"] if term["contained"] == 0}
    assert never
    assert not never & words


def test_field_that_is_not_stored_is_refused(searcher: Searcher):
    with pytest.raises(QueryError, match="does not store"):
        diagnose_index(searcher.snapshot, sample=3, fields=["body"])


def test_job_diagnoses_an_index_without_its_model(text_index: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", "terms", "--index", str(text_index), "--sample", "5"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT "))
    assert (result["kind"], result["sample"], result["documents"]) == ("index", 5, len(TEXTS))
