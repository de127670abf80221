"""Diagnosis of a model against its parts computed separately, and figures that a model cannot have."""

import json
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.command import main
from lsr_prod.model import SparseEncoder
from lsr_prod.training.vocabulary.head import activation_rate, head_norms
from lsr_prod_contrib.diagnostics.model_report import diagnose_model
from lsr_prod_contrib.vocabularies.casing_matrix import casing_matrix

TEXTS = [
    "A mutex protects shared state between two threads",
    "Threads wait on a mutex until the other thread unlocks it",
    "Parse a date string in another time zone",
    "Sort a list of numbers by their absolute value",
    "The garbage collector frees memory of unreachable objects",
    "Open a file and read its lines one by one",
]


@pytest.fixture(scope="module")
def encoder(tiny_model: Path) -> SparseEncoder:
    return SparseEncoder.load(tiny_model)


@pytest.fixture(scope="module")
def found(encoder: SparseEncoder) -> dict:
    return diagnose_model(encoder, TEXTS)


@pytest.mark.long
def test_figures_equal_those_of_the_vectors(encoder: SparseEncoder, found: dict):
    vectors = encoder.encode(TEXTS)
    frequencies = np.bincount(vectors.terms, minlength=encoder.card.vocabulary_size)
    assert found["dead"]["list"] == [encoder.vocabulary[term] for term in np.flatnonzero(frequencies == 0)]
    assert found["dead"]["special"] >= 999  # BERT's unused terms
    assert found["postings"]["std"] == pytest.approx(frequencies.std())
    rate = activation_rate(encoder, TEXTS, max_length=encoder.card.document_max_length)
    assert found["activated"]["activation_rate"] == pytest.approx(rate)
    norms = encoder.model.get_output_embeddings().weight.detach().norm(dim=1).numpy()
    assert found["dead"]["rows"]["norm_dead"] == pytest.approx(norms[frequencies == 0].mean(), rel=1e-5)
    assert found["dead"]["rows"]["norm_active"] == pytest.approx(norms[frequencies > 0].mean(), rel=1e-5)


def test_head_and_casing_are_those_of_the_vocabulary_package(encoder: SparseEncoder, found: dict):
    norms, counts = head_norms(encoder), casing_matrix(encoder, TEXTS, "document").counts
    assert (found["head"]["mean_norm"], found["head"]["anisotropy"]) == (norms.mean_norm, norms.anisotropy)
    assert [list(row.values()) for row in found["casing"].values()] == counts.tolist()
    assert found["missing"] == {}


def test_expanded_terms_are_not_in_the_texts(found: dict):
    words = {word for text in TEXTS for word in text.lower().split()}
    never = [term for term in found["expansion"]["most"] if term["contained"] == 0]
    assert never
    assert not {term["term"] for term in never} & words


def test_model_that_averages_states_says_why_it_has_no_casing_matrix(encoder: SparseEncoder):
    found = diagnose_model(encoder.with_card(pooled_states="mean"), TEXTS[:2])
    assert found["casing"] is None
    assert found["missing"]["casing"].startswith("it averages its hidden states")


def test_diagnosis_without_texts_is_refused(encoder: SparseEncoder):
    with pytest.raises(ConfigError, match="--texts"):
        diagnose_model(encoder, [])


def test_job_prints_tables_and_writes_the_lists(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    texts, output = tmp_path / "texts.jsonl", tmp_path / "diagnosis.json"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:3]))
    assert main(["inspect", "terms", str(tiny_model), "--texts", str(texts), "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    result = json.loads(printed.splitlines()[-1].removeprefix("RESULT "))
    written = json.loads(output.read_text())
    assert result["dead.terms"] == len(written["dead"]["list"])
    assert "most expanded terms" in printed


def test_texts_without_visible_character_are_refused_in_one_line(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "\u200b\u200d"}) + "\n")
    assert main(["inspect", "terms", str(tiny_model), "--texts", str(tmp_path / "texts.jsonl")]) == 2
    assert "--texts: there is no text" in capsys.readouterr().err


def test_model_says_why_it_has_no_logits_of_texts_without_tokens(encoder: SparseEncoder):
    found = diagnose_model(encoder, ["\u0301"])  # an accent alone, which the tokenizer of BERT removes
    assert (found["logits"], found["missing"]["logits"]) == (None, "no text has a token")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ([], "command line"),
        (["model"], "--texts"),
        (["model", "--texts", "absent.jsonl", "--count", "0"], "--count"),
        (["model", "--texts", "absent.jsonl"], "--texts"),
    ],
)
def test_job_refuses_bad_usage_in_one_line(arguments: list[str], field: str, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", "terms", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"lsr-prod inspect terms: {field}")
