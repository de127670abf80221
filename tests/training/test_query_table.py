"""Learned query weights: parity with plain PyTorch, workers, resumption, and search through an index of an export."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lsr_prod.config import Deployment, ExportSettings, IndexSettings
from lsr_prod.config.language import OptimizerSettings
from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError
from lsr_prod.indexing import build_index
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.model.export import export_bundle
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.storage.formats.table_format import quantize
from lsr_prod.storage.formats.term_weights import QUERY_WEIGHTS_FILE, weights_from_bytes, weights_to_bytes
from lsr_prod.training.batches import TrainBatch, pad
from lsr_prod.training.chain import run_chain
from lsr_prod.training.data.layouts import QueryTermLayout, TokenSettings
from lsr_prod.training.data.parts import PartMaker
from lsr_prod.training.data.prepare import _seal
from lsr_prod.training.data.training_rows import cut_data, pin_files
from lsr_prod.training.data.training_set import SetRecord, TrainingSet
from lsr_prod.training.data_sets import QueryTable
from lsr_prod.training.objective import TrainingObjective
from lsr_prod.training.process_group import Group
from lsr_prod.training.query_weights import count_terms, initial_weights, needs_term_counts, query_weights
from lsr_prod.training.replica import Replica
from lsr_prod.training.retrieval.gradient import StepPlan, backward
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stages.registry import check_stage, identity
from lsr_prod.training.stages.stage_facts import ModelFacts
from tests.indexing.corpus import encode_corpus, make_table
from tests.model.tiny import VOCABULARY, tiny_checkpoint
from tests.training.gloo import run_workers
from tests.training.small import small_collection, small_training

IDS = {term: number for number, term in enumerate(VOCABULARY)}
CPU = Group(0, 1, torch.device("cpu"))
TEXTS = {f"d{i}": f"w{i} W{i + 1} w{i + 2} w3" for i in range(1, 81, 2)}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory whose query weights are not trained yet."""
    folder = tmp_path_factory.mktemp("start")
    SparseEncoder.load(tiny_checkpoint(folder / "plain", "bert"), query_encoder="learned").save(folder / "learned")
    return folder / "learned"


def settings(folder: Path, start: Path, **stage: object) -> Deployment:
    return Deployment.model_validate(small_training(folder, start, **stage))


def trained(folder: Path, start: Path, steps: int, **stage: object) -> Trainer:
    """A trainer after some steps, without Ray."""
    asked = settings(folder, start, **stage).train.stages[0]
    assert isinstance(asked, FinetuneSettings)
    work, encoder = Store(str(folder / "work")), SparseEncoder.load(start)
    lengths = {
        "query_max_length": encoder.card.query_max_length,
        "document_max_length": encoder.card.document_max_length,
    }
    tokens = TokenSettings.of_model(start, **lengths, plain=False)
    layout = QueryTermLayout(encoder.card, tuple(encoder.vocabulary))
    maker = PartMaker(asked.data, tokens, True, digest_json({"kind": asked.data.kind}), work, {}, layout)
    part = maker.make(0, list(cut_data(pin_files(asked.data, {}), asked.data, 10**9, {})))
    _seal(work, SetRecord({"kind": asked.data.kind}, (part,)))
    counted = needs_term_counts(encoder, asked.query_weights)
    counts = count_terms(asked.data_sets, encoder, work, {}) if counted else None
    weights = initial_weights(encoder, counts, work)
    trainer = Trainer(encoder, TrainingSet.open(work, maker.digest), asked, CPU, query_weights=weights)
    for _ in range(steps):
        trainer.train_step()
    return trainer


def test_table_starts_with_given_weights_from_tiny_to_large():
    start = torch.tensor([1e-4, 0.02, 1.0, 9.5, 40.0])
    weights = QueryTable(start, OptimizerSettings(), factor=1.0).weights()
    torch.testing.assert_close(weights.detach(), start, rtol=1e-5, atol=0)


@pytest.mark.parametrize("chunk", [None, 3])
def test_steps_equal_plain_pytorch(start: Path, tmp_path: Path, chunk: int | None) -> None:
    """Model and table after three steps, against two plain AdamW and the formula of the loss."""
    stage: dict[str, Any] = {
        "dropout": 0.0,
        "batch": {"queries": 8, "negatives": 1, "chunk": chunk},
        "optimizer": {"learning_rate": 1e-3, "max_grad_norm": None, "schedule": "constant", "warmup_share": 0.0},
        "query_weights": {"learning_rate_factor": 30.0},
        "objective": {
            "losses": [{"loss": "info_nce"}],
            "sparsity": {
                "regularizers": [
                    {"regularizer": "l1", "query": 0.02, "ramp": "none"},
                    {"regularizer": "flops", "document": 0.01, "ramp": "none"},
                ]
            },
        },
    }
    trainer = trained(tmp_path, start, 0, **stage)
    encoder = SparseEncoder.load(start)
    begin = trainer.weights(keep=True)["query_weights"]
    raw = torch.log(torch.expm1(begin.double())).float().requires_grad_()
    matrices = [p for p in encoder.model.parameters() if p.ndim > 1]
    others = [p for p in encoder.model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    of_model = torch.optim.AdamW(groups, lr=1e-3)
    of_table = torch.optim.AdamW([raw], lr=1e-3 * 30, weight_decay=0.0)
    for _ in range(3):
        (part,) = trainer._parts()
        rows = []
        for ids, mask in zip(part.queries.input_ids.tolist(), part.queries.attention_mask.tolist(), strict=True):
            present = torch.zeros(len(VOCABULARY))
            present[[one for one, kept in zip(ids, mask, strict=True) if kept]] = 1
            rows.append(present * torch.log1p(torch.exp(raw)))
        queries = torch.stack(rows)
        documents = encoder(part.documents.input_ids, part.documents.attention_mask)
        loss = torch.nn.functional.cross_entropy(queries @ documents.T, torch.arange(len(queries)) * 2)
        loss = loss + 0.02 * queries.sum(1).mean() + 0.01 * documents.mean(0).square().sum()
        loss.backward()
        result = trainer.train_step()
        assert result.losses["total"] == pytest.approx(float(loss.detach()), rel=1e-4)
        for optimizer in (of_model, of_table):
            optimizer.step()
            optimizer.zero_grad()
    found = trainer.weights(keep=True)
    expected = torch.log1p(torch.exp(raw)).detach()
    torch.testing.assert_close(found["query_weights"], expected, rtol=1e-4, atol=1e-5)
    assert float((expected - begin).abs().max()) > 0.05
    for name, value in encoder.model.named_parameters():
        if not name.endswith("key.bias"):  # the softmax does not see them: rounding errors become steps of full size
            torch.testing.assert_close(found[name], value.detach(), rtol=1e-3, atol=1e-4, msg=name)


def table_after_steps(rank: int, world: int, start: str, strategy: Any) -> dict[str, torch.Tensor]:
    """The table after two steps on one and the same batch, of which this worker has a share."""
    encoder = SparseEncoder.load(Path(start)).eval()
    group = Group(rank, world, torch.device("cpu"))
    replica = Replica(encoder, strategy, group)
    own = np.array_split(np.arange(6), world)[rank]
    queries = pad([np.array([5 + i, 20 + 2 * i, 9], np.int32)[: 1 + i % 3] for i in own], 7)
    documents = pad([np.array([2, 5 + i, 9, 30 + i, 3], np.int32) for i in own], 7)
    objective = ObjectiveSettings.model_validate(
        {
            "losses": [{"loss": "info_nce"}],
            "sparsity": {"regularizers": [{"regularizer": "flops", "query": 0.1, "document": 0.1, "ramp": "none"}]},
        }
    )
    table = QueryTable(torch.linspace(0.5, 3, len(VOCABULARY)), OptimizerSettings(), factor=100.0)
    plan = StepPlan(group, None, bf16=False, seed=0, query_weights=table.weights)
    loss = TrainingObjective(objective, vocabulary=encoder.vocabulary, steps=10)
    for step in (1, 2):
        encoder.model.zero_grad()
        backward(replica, loss, [TrainBatch(queries, documents, None)], step=step, plan=plan, negatives=None)
        table.apply(1e-3)
    return table.state()


@pytest.mark.long
@pytest.mark.parametrize(("world", "strategy"), [(2, "ddp"), (3, "ddp"), (2, "fsdp")])
def test_workers_train_the_table_of_one_worker(start: Path, world: int, strategy: str) -> None:
    alone = table_after_steps(0, 1, str(start), "ddp")
    found = run_workers(table_after_steps, world, world, str(start), strategy)
    for one in found:
        torch.testing.assert_close(one["parameter"], alone["parameter"], rtol=1e-4, atol=1e-5)
        assert all(torch.equal(value, found[0][name]) for name, value in one.items())


def test_resumed_training_ends_with_table_of_undisturbed_one(start: Path, tmp_path: Path) -> None:
    whole = trained(tmp_path, start, 6)
    half = trained(tmp_path, start, 3)
    resumed = trained(tmp_path, start, 0)
    resumed.load(3, half.tensors(keep=True))
    for _ in range(3):
        resumed.train_step()
    for part, tensors in whole.tensors(keep=True).items():
        for name, value in tensors.items():
            assert torch.equal(value, resumed.tensors(keep=True)[part][name]), (part, name)


def test_table_starts_from_idf_ones_or_trained_weights(start: Path, tmp_path: Path) -> None:
    trainer = trained(tmp_path, start, 0)
    stage = settings(tmp_path, start).train.stages[0]
    work, encoder = Store(str(tmp_path / "work")), SparseEncoder.load(start)
    idf = query_weights(count_terms(stage.data_sets, encoder, work, {}), work, len(VOCABULARY))
    torch.testing.assert_close(trainer.weights(keep=True)["query_weights"], idf, rtol=1e-5, atol=0)
    ones = trained(tmp_path, start, 0, query_weights={"initialization": "ones"}).weights(keep=True)["query_weights"]
    torch.testing.assert_close(ones, torch.ones(len(VOCABULARY)))
    encoder.query_weights = torch.linspace(0.5, 3, len(VOCABULARY))
    encoder.save(tmp_path / "again")
    again = trained(tmp_path, tmp_path / "again", 0).weights(keep=True)["query_weights"]
    torch.testing.assert_close(again, encoder.query_weights, rtol=1e-5, atol=0)


def test_factor_0_keeps_the_table(start: Path, tmp_path: Path) -> None:
    tables = [
        trained(tmp_path, start, steps, query_weights={"learning_rate_factor": 0}).weights(keep=True)["query_weights"]
        for steps in (0, 3)
    ]
    torch.testing.assert_close(*tables)


def test_model_directory_keeps_query_weights(start: Path, tmp_path: Path) -> None:
    encoder = SparseEncoder.load(start)
    assert encoder.query_weights is None
    encoder.query_weights = torch.linspace(0.5, 3, len(VOCABULARY))
    digest = encoder.save(tmp_path / "model")
    assert digest == model_digest(tmp_path / "model") != model_digest(start)
    again = SparseEncoder.load(tmp_path / "model")
    assert torch.equal(again.query_weights, encoder.query_weights)
    assert torch.equal(again.clone().query_weights, encoder.query_weights)
    assert torch.equal(again.with_card(document_max_length=30).query_weights, encoder.query_weights)
    assert again.with_card(output_casing="uncased").query_weights is None  # its terms are others
    assert SparseEncoder.load(tmp_path / "model", output_casing="uncased").query_weights is None
    assert SparseEncoder.load(tmp_path / "model", query_encoder="idf").query_weights is None
    (tmp_path / "model" / QUERY_WEIGHTS_FILE).write_bytes(weights_to_bytes(-np.ones(len(VOCABULARY))))
    with pytest.raises(ArtifactError, match="below 0"):
        SparseEncoder.load(tmp_path / "model")


def test_damaged_query_weights_raise_artifact_error():
    data = weights_to_bytes(np.array([1.0, 2.5]))
    assert weights_from_bytes(data, 2, "x").tolist() == [1.0, 2.5]
    with pytest.raises(ArtifactError, match="not 3 weights"):
        weights_from_bytes(data, 3, "x")
    with pytest.raises(ArtifactError, match="cannot be read"):
        weights_from_bytes(data[:20], 2, "x")
    with pytest.raises(ArtifactError, match="not finite"):
        weights_from_bytes(weights_to_bytes(np.array([1.0, np.inf])), 2, "x")


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_chain_trains_and_validates_query_weights(start: Path, tmp_path: Path) -> None:
    validation = {**small_collection(tmp_path, every=6), "keep_best": "RR@10"}
    deployment = settings(tmp_path, start.parent / "plain", validation=validation)
    stages = [{"stage": "set_encoder", "query_encoder": "learned"}, *deployment.model_dump()["train"]["stages"]]
    deployment = Deployment.model_validate({"train": {**deployment.model_dump()["train"], "stages": stages}})
    row = run_chain(deployment)["stage_rows"][-1]
    assert 0 < row["validation/l0_query"] <= 2
    assert row["validation/RR@10"] >= 0
    made = SparseEncoder.load(tmp_path / "out")
    assert made.query_weights is not None
    assert len(made.query_weights.unique()) > 10
    assert run_chain(deployment)["stages_skipped"] == 2


@pytest.mark.long
def test_search_scores_equal_dot_products_with_the_table(start: Path, tmp_path: Path) -> None:
    """Export, encode and index trained weights, and compare a search by text with the dot products."""
    made = SparseEncoder.load(start)
    generator = torch.Generator().manual_seed(2)
    made.query_weights = 0.05 + 4 * torch.rand(len(VOCABULARY), generator=generator)
    made.save(tmp_path / "model")
    export_bundle(ExportSettings(model=str(tmp_path / "model"), output=str(tmp_path / "bundle")))
    make_table(tmp_path / "table", encode_corpus(tmp_path / "bundle", TEXTS), tmp_path / "bundle")
    folders = {name: str(tmp_path / name) for name in ("table", "bundle")}
    build_index(Deployment(index=IndexSettings(**folders, output=str(tmp_path / "index"), shards=2)))
    searcher = Searcher.open(tmp_path / "index", verify=True)
    documents = BundleEncoder(tmp_path / "bundle").encode(list(TEXTS.values()), kind="document", top_k=64)
    step = searcher.snapshot.version.impact_step
    impacts, _ = quantize(documents.weights, step, 8)
    for text in ("w5 w3 w3", "W8 w41", "w77 <s> w79 W80"):
        terms = {IDS[word] for word in text.split() if word != "<s>"}
        (query,) = searcher.encode([text])
        assert set(query.ids.tolist()) == terms
        assert query.weights.tolist() == [float(made.query_weights[term]) for term in query.ids.tolist()]
        scores = {}
        for i, doc_id in enumerate(TEXTS):
            ours = slice(*documents.offsets[i : i + 2])
            found = dict(zip(documents.terms[ours].tolist(), (impacts[ours] * step).tolist(), strict=True))
            scores[doc_id] = sum(float(made.query_weights[term]) * found.get(term, 0.0) for term in terms)
        hits = searcher.search(text, 10).hits
        best = sorted((score for score in scores.values() if score), reverse=True)[:10]
        assert [hit.score for hit in hits] == pytest.approx(best, rel=1e-3)
        assert all(hit.score == pytest.approx(scores[hit.doc_id], rel=1e-3) for hit in hits)
    path = searcher.snapshot.bundle / QUERY_WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\x80?")
    with pytest.raises(DigestMismatchError, match="query_weights"):
        Searcher.open(tmp_path / "index").search("w5", 1)


def test_export_without_trained_query_weights_is_rejected(start: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="never trained"):
        export_bundle(ExportSettings(model=str(start), output=str(tmp_path / "bundle")))


def test_settings_without_effect_are_rejected(start: Path, tmp_path: Path) -> None:
    facts = ModelFacts.of(SparseEncoder.load(start))
    train = settings(tmp_path, start, query_weights={}).train
    check_stage(train.stages[0], train, facts, {})
    idf = ModelFacts.of(SparseEncoder.load(start, query_encoder="idf"))
    with pytest.raises(ConfigError, match="query_encoder idf, so no query weights are trained"):
        check_stage(train.stages[0], train, idf, {})
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "w1 w3"}) + "\n")
    corpus = {"paths": [str(tmp_path / "texts.jsonl")], "kind": "texts"}
    train = settings(tmp_path, start, query_weights={"initialization": "ones"}, idf_corpus=corpus).train
    with pytest.raises(ConfigError, match="start from ones"):
        check_stage(train.stages[0], train, facts, {})
    plain = settings(tmp_path, start).train.stages[0]
    assert identity(plain)["query_weights"] is None
    assert "query_weights" in identity(train.stages[0])
