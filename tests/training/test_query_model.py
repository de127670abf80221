"""A separate query encoder, from training to search: two models of one output vocabulary."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM

from lsr_prod.config import Deployment, ExportSettings, FinetuneSettings
from lsr_prod.config.model import AdaptEncoderSettings
from lsr_prod.errors import ConfigError
from lsr_prod.indexing.text_index import Index
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.model.export import export_bundle
from lsr_prod.storage.formats.bundle_format import Bundle, EncoderCard
from lsr_prod.training.chain import run_chain
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.encoder_setup import trained_module
from lsr_prod.training.lineage import read_training
from lsr_prod.training.loop.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.gradient import backward
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stages.registry import check_stage
from lsr_prod.training.stages.stage_facts import ModelFacts, check_query_model
from tests.model.tiny import VOCABULARY, tiny_checkpoint, tiny_tokenizer
from tests.training.gloo import run_workers
from tests.training.small import small_training

CPU = torch.device("cpu")
ALONE = Group(0, 1, CPU)
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
TEXTS = [f"w{i} W{i + 1} w{i + 2}" for i in range(1, 81, 2)]


class Rows(SampleRows):
    """Random texts."""

    def __init__(self, rows: int) -> None:
        draw = np.random.default_rng(5)
        super().__init__([Example(_text(draw, 5), tuple(_text(draw, 12) for _ in range(2)), None) for _ in range(rows)])


def _text(draw: np.random.Generator, longest: int) -> np.ndarray:
    return np.array([2, *draw.integers(10, 90, draw.integers(1, longest)), 3], np.int32)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Model directories of a document encoder, and of a query encoder of half its size."""
    folder = tmp_path_factory.mktemp("models")
    documents = SparseEncoder.load(tiny_checkpoint(folder / "large", "bert"))
    documents.save(folder / "documents")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = BertConfig(vocab_size=len(VOCABULARY), pad_token_id=7, max_position_embeddings=40, **SIZES)
        small = BertForMaskedLM(config)
        for parameter in small.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    small.save_pretrained(folder / "small")
    tiny_tokenizer().save_pretrained(folder / "small")
    SparseEncoder.load(folder / "small", query_max_length=12, query_prompt="w3 ").save(folder / "queries")
    return folder / "documents", folder / "queries"


def _pair(models: tuple[Path, Path]) -> SparseEncoder:
    return SparseEncoder.load(models[0]).with_queries(SparseEncoder.load(models[1]))


def _settings(**changes: Any) -> FinetuneSettings:
    base = {
        "data": {"paths": ["x"], "kind": "negatives"},
        "batch": {"queries": 4, "negatives": 1},
        "steps": 6,
        "dropout": 0.0,
        "optimizer": {"learning_rate": 1e-3},
        "objective": {"losses": [{"loss": "info_nce"}]},
    }
    return FinetuneSettings.model_validate(base | changes)


def _trainer(models: tuple[Path, Path], settings: FinetuneSettings, group: Group = ALONE) -> Trainer:
    return Trainer(_pair(models), Rows(9), settings, group)  # type: ignore[arg-type]


def test_model_directory_stores_both_encoders(models: tuple[Path, Path], tmp_path: Path) -> None:
    pair = _pair(models)
    digest = pair.save(tmp_path / "pair")
    assert digest == model_digest(tmp_path / "pair")
    assert EncoderCard.load(tmp_path / "pair").query_encoder == "separate"
    loaded = SparseEncoder.load(tmp_path / "pair", query_max_length=5)
    documents, queries = (SparseEncoder.load(folder) for folder in models)
    for kind, alone in (("document", documents), ("query", queries)):
        ours, expected = pair.encode(TEXTS, kind), alone.encode(TEXTS, kind)
        np.testing.assert_array_equal(ours.offsets, expected.offsets)
        np.testing.assert_array_equal(ours.terms, expected.terms)
        np.testing.assert_array_equal(ours.weights, expected.weights)
    assert loaded.queries is not None
    assert (loaded.queries.card.query_max_length, loaded.queries.card.query_prompt) == (5, "w3 ")
    assert loaded.clone().save(tmp_path / "again") == loaded.save(tmp_path / "third") != digest
    with pytest.raises(ConfigError, match="query_encoder separate"):
        pair.with_queries(queries)
    (tmp_path / "pair" / "query").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="with no separate query encoder"):
        SparseEncoder.load(tmp_path / "pair")


def _gradients(rank: int, world: int, folders: tuple[str, str], chunk: int | None, trained: str) -> dict[str, Tensor]:
    """Gradient of the first step; this worker has its share of the batch."""
    settings = _settings(batch={"queries": 4, "negatives": 1, "chunk": chunk}, trained=trained)
    trainer = _trainer((Path(folders[0]), Path(folders[1])), settings, Group(rank, world, CPU))
    parts = trainer._parts()
    backward(trainer._replica, trainer._objective, parts, step=0, plan=trainer._plan, negatives=None)
    named = trained_module(trainer.encoder).named_parameters()
    return {name: p.grad for name, p in named if p.grad is not None}


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("trained", ["both", "query", "document"])
def test_gradient_equals_that_of_plain_torch(models: tuple[Path, Path], trained: str, chunk: int | None) -> None:
    documents, queries = (SparseEncoder.load(folder) for folder in models)
    (part,) = _trainer(models, _settings())._parts()
    scores = queries(part.queries.input_ids, part.queries.attention_mask) @ (
        documents(part.documents.input_ids, part.documents.attention_mask).T
    )
    functional.cross_entropy(scores, torch.arange(4) * 2).backward()
    expected = {
        f"{side}.{name}": p.grad
        for side, encoder in (("document", documents), ("query", queries))
        if trained in (side, "both")
        for name, p in encoder.model.named_parameters()
        if p.grad is not None
    }
    folders = str(models[0]), str(models[1])
    torch.testing.assert_close(_gradients(0, 1, folders, chunk, trained), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("chunk", "trained"), [(None, "both"), (1, "both"), (1, "query")])
def test_two_workers_have_same_gradient_as_one(models: tuple[Path, Path], chunk: int | None, trained: str) -> None:
    folders = str(models[0]), str(models[1])
    alone = _gradients(0, 1, folders, None, trained)
    for found in run_workers(_gradients, 2, 2, folders, chunk, trained):
        torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trained", ["both", "query", "document"])
def test_run_resumes_to_the_bit_and_frozen_side_stays(models: tuple[Path, Path], tmp_path: Path, trained: str) -> None:
    settings = _settings(trained=trained, dropout=0.1)
    whole = _trainer(models, settings)
    losses = [whole.train_step().losses["total"] for _ in range(6)]
    first = _trainer(models, settings)
    for _ in range(3):
        first.train_step()
    first.encoder.encode(TEXTS[:2], "document")  # a validation
    write_checkpoint(tmp_path, Checkpoint(first.step, first.tensors(keep=True), {}), name="stage")
    second, found = _trainer(models, settings), read_checkpoint(tmp_path, name="stage")
    second.load(found.step, found.tensors)
    assert [second.train_step().losses["total"] for _ in range(3)] == losses[3:]
    assert [first.train_step().losses["total"] for _ in range(3)] == losses[3:]
    start, ended = trained_module(_pair(models)).state_dict(), trained_module(whole.encoder).state_dict()
    resumed = trained_module(second.encoder).state_dict()
    assert all(torch.equal(resumed[name], value) for name, value in ended.items())
    changed = {name.partition(".")[0] for name in start if not torch.equal(start[name], ended[name])}
    assert changed == ({"document", "query"} if trained == "both" else {trained})


def test_settings_that_do_not_fit_are_refused(models: tuple[Path, Path], tmp_path: Path) -> None:
    facts = ModelFacts.of(SparseEncoder.load(models[0]))
    stage = _settings(query_model=str(models[1]))
    pins, asked = check_query_model(stage, facts, pins={})
    assert (pins, asked.query_max_length) == ({"query_model": model_digest(models[1])}, 12)
    with pytest.raises(ConfigError, match="set query_model, or leave trained out"):
        check_query_model(_settings(trained="query"), facts, pins={})
    with pytest.raises(ConfigError, match="output terms differ"):
        check_query_model(stage, replace(facts, vocabulary_sha256="0" * 64), pins={})
    with pytest.raises(ConfigError, match="another encoder reads queries already"):
        check_query_model(stage, replace(facts, query_encoder="idf"), pins={})
    change = AdaptEncoderSettings(stage="set_encoder", query_max_length=9)
    with pytest.raises(ConfigError, match="has a separate query encoder"):
        check_stage(change, None, replace(facts, query_encoder="separate"), {})  # type: ignore[arg-type]
    flops = {"regularizers": [{"regularizer": "flops", "document": 1}]}
    with pytest.raises(ValueError, match="flops has a weight for the vectors that trained freezes"):
        _settings(trained="query", objective={"losses": [{"loss": "info_nce"}], "sparsity": flops})


def _search(bundle: Path, query: str) -> list[tuple[str, float]]:
    with Index.from_texts(TEXTS, bundle) as index:
        return [(hit.doc_id, hit.score) for hit in index.search(query, 5).hits]


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_chain_trains_pair_and_records_both_parents(models: tuple[Path, Path], tmp_path: Path) -> None:
    settings = small_training(tmp_path, models[0], query_model=str(models[1]))
    (stage,) = run_chain(Deployment.model_validate(settings))["stage_rows"]
    assert stage["steps"] == 12
    out = tmp_path / "out"
    training = read_training(out)
    assert training is not None
    assert training["pins"]["query_model"] == model_digest(models[1])
    assert EncoderCard.load(out).parents[0] == model_digest(models[0])
    assert EncoderCard.load(out / "query").parents[0] == model_digest(models[1])
    assert run_chain(Deployment.model_validate(settings))["stage_rows"][0]["skipped"]


@pytest.mark.long
def test_pair_is_exported_indexed_and_searched(models: tuple[Path, Path], tmp_path: Path) -> None:
    trainer = _trainer(models, _settings())
    for _ in range(6):
        trainer.train_step()
    out, bundle = tmp_path / "out", tmp_path / "bundle"
    trainer.encoder.save(out)
    trained = SparseEncoder.load(out)
    row = export_bundle(ExportSettings(model=str(out), output=str(bundle)))
    assert row["parity_overlap"] >= 0.999
    assert row["parity_query_overlap"] >= 0.999
    assert 0 < row["query_graph_bytes"] < row["graph_bytes"]
    manifest = Bundle.load(bundle, verify=True)
    assert Bundle.from_json(json.loads(json.dumps(manifest.to_json()))).digest == manifest.digest
    with pytest.raises(ConfigError, match="query_encoder separate"):
        BundleEncoder(bundle).encode(["w1"], kind="query")

    query = "w5 w7 W8"
    ids, weights = trained.encode([query], "query").row(0)
    documents, expected = trained.encode(TEXTS, "document"), []
    for number in range(len(TEXTS)):
        own = dict(zip(*(values.tolist() for values in documents.row(number)), strict=True))
        expected.append(sum(w * own.get(i, 0.0) for i, w in zip(ids.tolist(), weights.tolist(), strict=True)))
    found = _search(bundle, query)
    assert len(found) == 5
    for name, score in found:
        assert score == pytest.approx(expected[int(name)], rel=0.05)  # impacts have 8 bits
    assert found[0][1] == pytest.approx(max(expected), rel=0.05)
