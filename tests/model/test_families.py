"""Families of models: torch, the bundle and sentence-transformers return the same vectors."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SparseEncoder as Peer

from benchmarks.model.checkpoints import BLANK, FAMILIES, TEXTS, write_checkpoint
from benchmarks.model.families import LIMIT, export, graph_difference, open_family, peer_difference, vectors
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder

REFUSED = ("T5", "GPT-2")
LOADED = [name for name in FAMILIES if name not in REFUSED]
MASKED = [name for name in LOADED if FAMILIES[name].attention == "bidirectional"]
# A graph of each kind that no other test exports: relative positions by buckets, and positions after the padding token.
QUICK = ("DeBERTa-v2", "XLM-RoBERTa")


@pytest.mark.parametrize("name", MASKED)
def test_torch_equals_sentence_transformers_over_odd_texts(tmp_path: Path, name: str) -> None:
    opened = open_family(FAMILIES[name], tmp_path)
    assert peer_difference(opened) < LIMIT
    queries, documents = (vectors(opened.encoder, kind) for kind in ("query", "document"))
    assert np.abs(queries - documents).max() > 0.01, "the prompts differ"
    assert len({row.tobytes() for row in documents}) == len(TEXTS), "the texts differ"


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LOADED]
)
def test_bundle_equals_torch_over_odd_texts(tmp_path: Path, name: str) -> None:
    opened = open_family(FAMILIES[name], tmp_path)
    bundle, figures = export(opened, "fp32")
    assert graph_difference(opened, bundle) < LIMIT
    assert figures["parity_overlap"] > 0.999
    for encoder in (opened.encoder, bundle):
        for kind in ("query", "document"):
            assert not len(encoder.encode(BLANK, kind=kind).terms), "a text of white space has an empty vector"


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADED)
def test_int8_bundle_has_terms_of_torch(tmp_path: Path, name: str) -> None:
    assert export(open_family(FAMILIES[name], tmp_path), "int8")[1]["parity_overlap"] > 0.98


@pytest.mark.parametrize("name", LOADED)
def test_longest_text_has_a_vector_and_a_longer_one_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_checkpoint(FAMILIES[name], tmp_path)
    encoder = SparseEncoder.load(folder, query_max_length=40)
    assert len(encoder.encode(["word " * 200], "query").terms)
    with pytest.raises(ConfigError, match=r"^query_max_length: 41 .*give \d to 40 tokens"):
        SparseEncoder.load(folder, query_max_length=41)


@pytest.mark.parametrize("name", REFUSED)
def test_family_without_supported_head_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    folder = write_checkpoint(FAMILIES[name], tmp_path)
    with pytest.raises(ConfigError, match="is not a language model with a supported head"):
        SparseEncoder.load(folder)


def test_deberta_head_of_its_authors_equals_sentence_transformers(tmp_path: Path) -> None:
    """``legacy: false``: the names of the weights in the published checkpoints of DeBERTa-v3."""
    folder = write_checkpoint(FAMILIES["DeBERTa-v2"], tmp_path / "legacy")
    legacy = SparseEncoder.load(folder)
    weights = load_file(folder / "model.safetensors")
    renamed = {
        name.replace("cls.predictions.transform.", "lm_predictions.lm_head.")
        .replace("cls.predictions.decoder.bias", "lm_predictions.lm_head.bias")
        .replace("cls.predictions.bias", "lm_predictions.lm_head.bias"): value
        for name, value in weights.items()
        if name != "cls.predictions.decoder.weight"
    }
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "legacy": False}))
    theirs = Peer(str(folder), device="cpu", local_files_only=True).encode_document(
        list(TEXTS), convert_to_sparse_tensor=False
    )
    np.testing.assert_allclose(vectors(legacy, "document"), theirs.numpy(), atol=LIMIT)
    for settings in ({"legacy": False}, {"legacy": True}):  # without the field, ``legacy`` is true
        (folder / "config.json").write_text(json.dumps({**config, **settings}))
        encoder = SparseEncoder.load(folder)
        np.testing.assert_array_equal(vectors(encoder, "document"), vectors(legacy, "document"))
    encoder.save(tmp_path / "saved")
    again = SparseEncoder.load(tmp_path / "saved").encode(TEXTS)
    np.testing.assert_array_equal(again.dense(encoder.card.vocabulary_size), vectors(legacy, "document"))
