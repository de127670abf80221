"""Documents trained against fixed queries: vectors by the formula, no gradient of queries, chunks, resumption."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lsr_prod.config import Deployment
from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.output_layer import replace_output_layer
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.batches import TokenBatch, TrainBatch, pad
from lsr_prod.training.chain import run_chain
from lsr_prod.training.data.layouts import QueryTermLayout
from lsr_prod.training.data.prepare import prepare_training_set
from lsr_prod.training.data.training_set import TrainingSet
from lsr_prod.training.objective import TrainingObjective
from lsr_prod.training.process_group import Group
from lsr_prod.training.query_weights import count_terms, query_weighing, query_weights, reader_of, weigh_queries
from lsr_prod.training.replica import Replica, full_tensor, trained_parameters
from lsr_prod.training.retrieval.gradient import StepPlan, backward
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stages.registry import check_stage, identity
from lsr_prod.training.stages.stage_facts import ModelFacts
from tests.model.tiny import VOCABULARY, tiny_checkpoint
from tests.training.gloo import run_workers
from tests.training.small import small_collection, small_training, weights_of

IDS = {term: number for number, term in enumerate(VOCABULARY)}
CPU = Group(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory whose queries have no model."""
    folder = tmp_path_factory.mktemp("start")
    SparseEncoder.load(tiny_checkpoint(folder / "plain", "bert"), query_encoder="idf").save(folder / "idf")
    return folder / "idf"


def settings(folder: Path, start: Path, **stage: object) -> Deployment:
    regularizers = [{"regularizer": "flops", "document": 0.01, "l0_mask": 5}]
    objective = {"losses": [{"loss": "info_nce"}], "sparsity": {"regularizers": regularizers}}
    return Deployment.model_validate(small_training(folder, start, **{"objective": objective, **stage}))


def test_weigh_queries_ignores_padding():
    weights = torch.arange(10.0) + 1
    queries = pad([torch.tensor([3, 7]).numpy(), torch.tensor([0]).numpy(), torch.tensor([], dtype=int).numpy()], 99)
    rows = weigh_queries(queries, weights)
    expected = torch.zeros(3, 10)
    expected[0, 3], expected[0, 7], expected[1, 0] = 4, 8, 1
    assert torch.equal(rows, expected)
    nobody = weigh_queries(
        TokenBatch(torch.zeros(0, 8, dtype=torch.long), torch.zeros(0, 8, dtype=torch.long)), weights
    )
    assert nobody.shape == (0, 10)


def test_count_terms_counts_every_document_once_untruncated(start, tmp_path):
    rows = [
        {"query": "w1", "positive": "w1 W2", "negatives": ["w3 w3 w5"]},
        {"query": "w3", "positive": "w3 w3 w5", "negatives": ["w1 W2", " ".join(["W4"] * 60) + " w7"]},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = TrainingDataSettings(paths=[str(tmp_path / "rows.jsonl")], kind="negatives")
    work, encoder = Store(str(tmp_path / "work")), SparseEncoder.load(start)
    file = count_terms([data], encoder, work, {})
    found = query_weights(file, work, len(VOCABULARY))
    df = {"w1": 1, "W2": 1, "w3": 1, "w5": 1, "W4": 1, "w7": 1}  # w7 stands where a document would be cut
    expected = [math.log(1 + (3 - df.get(term, 0) + 0.5) / (df.get(term, 0) + 0.5)) for term in VOCABULARY]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)
    assert count_terms([data], encoder, work, {}) == file
    assert query_weights(count_terms([data, data], encoder, work, {}), work, len(VOCABULARY)).equal(found)
    other = count_terms([data], SparseEncoder.load(start, casing="lowercase"), work, {})
    assert other.path != file.path
    with pytest.raises(DigestMismatchError, match="has changed"):
        query_weights(replace(file, sha256=hashlib.sha256(b"").hexdigest()), work, len(VOCABULARY))
    work.delete(file.path)
    with pytest.raises(ArtifactError, match="was deleted"):
        query_weights(file, work, len(VOCABULARY))


def trained(folder: Path, start: Path, steps: int, *, proportional: bool = False, **stage: object) -> Trainer:
    """A trainer after some steps, without Ray but for the preparation; ``proportional``: small gradients, small steps.

    AdamW makes a step of full size of a gradient that is nothing but rounding errors.
    """
    asked = settings(folder, start, **stage).train.stages[0]
    assert isinstance(asked, FinetuneSettings)
    work, encoder = Store(str(folder / "work")), SparseEncoder.load(start)
    summary = prepare_training_set(
        asked.data,
        model=start,
        query_max_length=encoder.card.query_max_length,
        document_max_length=encoder.card.document_max_length,
        store=work,
        options={},
        layout=QueryTermLayout(encoder.card, tuple(encoder.vocabulary)),
    )
    weights = query_weights(count_terms(asked.data_sets, encoder, work, {}), work, len(VOCABULARY))
    trainer = Trainer(encoder, TrainingSet.open(work, summary.digest), asked, CPU, query_weights=weights)
    for group in trainer._optimizer._optimizer.param_groups if proportional else ():
        group["eps"] = 1e-3
    for _ in range(steps):
        trainer.train_step()
    return trainer


@pytest.mark.usefixtures("ray_local")
def test_step_has_gradient_of_loss_with_fixed_queries(start, tmp_path):
    trainer = trained(tmp_path, start, 0, dropout=0.0)
    encoder = SparseEncoder.load(start)
    (part,) = trainer._parts()
    assert {VOCABULARY[i] for i in part.queries.input_ids[part.queries.attention_mask > 0].tolist()} >= {"w3"}
    queries = weigh_queries(part.queries, trainer._plan.query_weights())
    documents = encoder(part.documents.input_ids, part.documents.attention_mask)
    scores = queries @ documents.T
    positive = torch.arange(len(queries)) * 2
    expected = torch.nn.functional.cross_entropy(scores, positive)
    result = trainer.train_step()
    assert result.losses["info_nce"] == pytest.approx(float(expected.detach()), rel=1e-4)
    found, _ = result.vectors()
    assert torch.equal(found, queries)
    assert result.losses["total"] >= result.losses["info_nce"]


@pytest.mark.usefixtures("ray_local")
def test_gradient_cache_gives_weights_of_whole_batch(start, tmp_path):
    before = trained(tmp_path, start, 0).weights(keep=True)
    whole = trained(tmp_path, start, 3, proportional=True, dropout=0.0).weights(keep=True)
    batch = {"queries": 8, "negatives": 1, "chunk": 3}
    cut = trained(tmp_path, start, 3, proportional=True, dropout=0.0, batch=batch).weights(keep=True)
    for name, value in whole.items():
        moved = float((value - before[name]).abs().max())
        assert float((value - cut[name]).abs().max()) <= 1e-3 * moved + 1e-7, name
    assert any(float((value - before[name]).abs().max()) > 1e-5 for name, value in whole.items())


def gradients(rank: int, world: int, start: str, strategy: Any, chunk: int | None) -> dict[str, torch.Tensor]:
    """The whole gradient of one and the same batch against fixed queries, of which this worker has a share."""
    encoder = SparseEncoder.load(Path(start)).eval()
    group = Group(rank, world, torch.device("cpu"))
    replica = Replica(encoder, strategy, group)
    own = np.array_split(np.arange(6), world)[rank]
    queries = pad([np.array([5 + i, 20 + 2 * i], np.int32)[: 1 + i % 2] for i in own], 7)
    documents = pad([np.array([2, 5 + i, 9, 30 + i, 3], np.int32) for i in own], 7)
    objective = ObjectiveSettings.model_validate(
        {
            "losses": [{"loss": "info_nce"}],
            "sparsity": {"regularizers": [{"regularizer": "flops", "document": 0.1, "ramp": "none"}]},
        }
    )
    plan = StepPlan(group, chunk, bf16=False, seed=0, query_weights=lambda: torch.linspace(0.5, 3, len(VOCABULARY)))
    loss = TrainingObjective(objective, vocabulary=encoder.vocabulary, steps=10)
    backward(replica, loss, [TrainBatch(queries, documents, None)], step=1, plan=plan, negatives=None)
    return {name: full_tensor(p.grad) for name, p in trained_parameters(encoder.model).items() if p.grad is not None}


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "chunk"), [("ddp", None), ("fsdp", 2)])
def test_two_workers_have_same_gradient_as_one(start: Path, strategy: str, chunk: int | None) -> None:
    alone = gradients(0, 1, str(start), "ddp", None)
    for found in run_workers(gradients, 2, 2, str(start), strategy, chunk):
        assert sorted(found) == sorted(alone)
        for name, value in alone.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.usefixtures("ray_local")
def test_resumed_training_ends_with_weights_of_undisturbed_one(start, tmp_path):
    whole = trained(tmp_path, start, 6)
    half = trained(tmp_path, start, 3)
    resumed = trained(tmp_path, start, 0)
    resumed.load(3, half.tensors(keep=True))
    for _ in range(3):
        resumed.train_step()
    for name, value in whole.weights(keep=True).items():
        assert torch.equal(value, resumed.weights(keep=True)[name]), name


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_chain_trains_and_validates_inference_free_queries(start, tmp_path):
    validation = {**small_collection(tmp_path, every=6), "keep_best": "RR@10"}
    plain = start.parent / "plain"  # whose queries have a model until the first stage is done
    deployment = settings(tmp_path, plain, validation=validation, batch={"queries": 8, "negatives": 1, "chunk": 6})
    stages = [{"stage": "set_encoder", "query_encoder": "idf"}, *deployment.model_dump()["train"]["stages"]]
    deployment = Deployment.model_validate({"train": {**deployment.model_dump()["train"], "stages": stages}})
    summary = run_chain(deployment)
    row = summary["stage_rows"][-1]
    assert row["quarantined"] == 0
    assert 0 < row["validation/l0_query"] <= 2
    assert row["validation/RR@10"] >= 0
    made = SparseEncoder.load(tmp_path / "out")
    assert made.card.query_encoder == "idf"
    assert weights_of(tmp_path / "out") != weights_of(start)
    assert run_chain(deployment)["stages_skipped"] == 2


def test_validation_weighs_queries_by_own_documents(start):
    encoder = SparseEncoder.load(start)
    documents = ["w1 w3", "w3 w5", "w3"]
    encode = query_weighing(encoder, documents)(encoder)
    batch = encode(["w3 w1 w9", "", "w5"], "query")
    ids, weights = batch.row(0)
    assert ids.tolist() == [IDS["w9"], IDS["w1"], IDS["w3"]]
    assert weights.tolist() == pytest.approx([math.log(1 + (3 - df + 0.5) / (df + 0.5)) for df in (0, 1, 3)], rel=1e-6)
    assert len(batch.row(1)[0]) == 0
    assert torch.equal(
        torch.from_numpy(encode(documents, "document").weights), torch.from_numpy(encoder.encode(documents).weights)
    )
    assert reader_of(encoder).query("w3").ids == [IDS["w3"]]


def test_word_outside_the_vocabulary_counts_as_in_a_search(start):
    encoder, words = SparseEncoder.load(start), ["the", "cat", "dog"]
    replace_output_layer(encoder.model, torch.randn(3, output_layer(encoder.model)[0].shape[1]), None)
    changes = {"vocabulary_size": 3, "vocabulary_sha256": digest_json(words), "output_vocabulary": "words"}
    encoder = SparseEncoder(encoder.model, encoder.tokenizer, replace(encoder.card, **changes), words)
    batch = query_weighing(encoder, ["the cat", "dog"])(encoder)(["the cat zebra giraffe", "dog ox"], "query")
    assert [sorted(batch.row(i)[0].tolist()) for i in range(2)] == [[0, 1, 3, 4], [2, 3]]


def test_inference_free_queries_reject_query_settings(start, tmp_path):
    facts = ModelFacts.of(SparseEncoder.load(start))
    regularizers = [{"regularizer": "flops", "query": 0.01}]
    objective = {"losses": [{"loss": "info_nce"}], "sparsity": {"regularizers": regularizers}}
    train = settings(tmp_path, start, objective=objective).train
    with pytest.raises(ConfigError, match=r"regularizers\.0\.query"):
        check_stage(train.stages[0], train, facts, {})
    corpus = {"paths": [str(tmp_path / "none.jsonl")], "kind": "texts"}
    train = settings(tmp_path, start, idf_corpus=corpus).train
    with pytest.raises(ConfigError, match=r"idf_corpus\.paths"):
        check_stage(train.stages[0], train, facts, {})
    with pytest.raises(ConfigError, match="the model encodes queries"):
        check_stage(train.stages[0], train, replace(facts, query_encoder="model"), {})
    with pytest.raises(ConfigError, match="query_prompt"):
        SparseEncoder.load(start, query_prompt="query: ")
    with pytest.raises(ValueError, match="kind has to be texts"):
        settings(tmp_path, start, idf_corpus={**corpus, "kind": "pairs"})


def test_idf_corpus_is_pinned_in_stage_digest(start, tmp_path):
    facts = ModelFacts.of(SparseEncoder.load(start))
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "w1 w3"}) + "\n")
    plain = settings(tmp_path, start).train.stages[0]
    train = settings(tmp_path, start, idf_corpus={"paths": [str(tmp_path / "texts.jsonl")], "kind": "texts"}).train
    pins, _ = check_stage(train.stages[0], train, facts, {})
    assert pins.keys() == {"data", "idf_corpus"}
    assert identity(plain)["idf_corpus"] is None
    assert "paths" not in identity(train.stages[0])["idf_corpus"]


def test_rows_with_special_tokens_have_digests_of_their_own(start, tmp_path):
    encoder, work = SparseEncoder.load(start), Store(str(tmp_path / "work"))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"query": "w1", "positive": "w3 <unk>"}) + "\n")
    data = TrainingDataSettings(paths=[str(tmp_path / "rows.jsonl")], kind="pairs")
    plain = QueryTermLayout(encoder.card, ()).to_json(), count_terms([data], encoder, work, {}).path
    card = replace(encoder.card, query_special_tokens="weighted")
    weighted = SparseEncoder(encoder.model, encoder.tokenizer, card)
    other = QueryTermLayout(card, ()).to_json(), count_terms([data], weighted, work, {}).path
    assert plain[0] != other[0]
    assert plain[1] != other[1]
