"""BGE-M3's sparse head: import, parity with plain PyTorch, gradients, export, search, and what is refused."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import XLMRobertaModel

from lsr_prod.config import Deployment, ExportSettings, IndexSettings
from lsr_prod.errors import ConfigError
from lsr_prod.indexing import build_index
from lsr_prod.inference import BundleEncoder
from lsr_prod.jobs.training import model as model_command
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.model.export import export_bundle
from lsr_prod.model.token_weights import pool_token_weights
from lsr_prod.search import Searcher
from lsr_prod.storage.formats.table_format import quantize
from lsr_prod.training.stages.registry import REGISTRY, check_stage
from lsr_prod.training.stages.stage_facts import ModelFacts
from lsr_prod_contrib.vocabularies.figures import inspect_vocabulary
from tests.indexing.corpus import encode_corpus, make_table
from tests.model.bge_m3 import SENTENCES, bge_m3_folder, lexical_weights
from tests.training.small import small_training

pytestmark = pytest.mark.usefixtures("traced_once")
TEXTS = [*SENTENCES, "lock lock the LOCK", "xyz 123 ☃", "<mask> a <s> file </s>", "lock " * 100]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bge_m3_folder(tmp_path_factory.mktemp("bge") / "bge-m3")


@pytest.fixture(scope="module")
def model(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model directory that the command makes of the folder."""
    made = tmp_path_factory.mktemp("model") / "model"
    assert model_command.run([str(folder), str(made)]) == 0
    return made


@pytest.fixture(scope="module")
def bundle(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bundle") / "bundle"
    export_bundle(ExportSettings(model=str(model), output=str(made)))
    return made


def test_import_keeps_card_and_vectors_of_bge_m3(folder: Path, model: Path) -> None:
    encoder = SparseEncoder.load(model)
    card = encoder.card
    assert (card.architecture, card.head, card.activation) == ("XLMRobertaModel", "token_weights", "relu")
    assert (card.query_max_length, card.document_max_length) == (64, 64)  # 66 positions, of which 2 are not used
    assert not (model / "modules.json").exists()  # sentence-transformers cannot express the head
    assert not list(model.glob("*.pt"))
    for one in (encoder, SparseEncoder.load(folder)):
        vectors = one.encode(TEXTS)
        for i, text in enumerate(TEXTS):
            ids, weights = vectors.row(i)
            expected = lexical_weights(folder, text, 64)
            found = dict(zip(ids.tolist(), weights.tolist(), strict=True))
            assert found.keys() == expected.keys()
            assert all(found[term] == pytest.approx(value, abs=1e-5) for term, value in expected.items())
    assert len(vectors.row(TEXTS.index("lock lock the LOCK"))[0])
    assert encoder.vocabulary.index("<mask>") == len(encoder.vocabulary) - 1
    again = model.parent / "again"
    assert encoder.save(again) == model_digest(model) == SparseEncoder.load(model).clone().save(again)


def test_published_pickle_files_give_the_same_model(folder: Path, model: Path, tmp_path: Path) -> None:
    pickled = bge_m3_folder(tmp_path / "pickled", pickled=True)
    one, other = SparseEncoder.load(pickled), SparseEncoder.load(folder)
    for name, value in other.model.state_dict().items():
        assert torch.equal(one.model.state_dict()[name], value), name
    assert np.array_equal(one.encode(TEXTS).weights, other.encode(TEXTS).weights)


class _Malicious:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("name", ["sparse_linear.pt", "pytorch_model.bin"])
def test_pickle_with_code_is_refused_and_not_run(tmp_path: Path, name: str) -> None:
    folder = bge_m3_folder(tmp_path / "bge", pickled=True)
    torch.save({"weight": _Malicious(tmp_path / "ran")}, folder / name)
    with pytest.raises(ConfigError, match="more than tensors"):
        SparseEncoder.load(folder)
    assert not (tmp_path / "ran").exists()


def test_incomplete_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    folder = bge_m3_folder(tmp_path / "bge", pickled=True)
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    torch.save({name: value for name, value in weights.items() if "layer.1" not in name}, folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"no weights for encoder\.layer\.1"):
        SparseEncoder.load(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(ConfigError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        SparseEncoder.load(folder)
    other = bge_m3_folder(tmp_path / "wide")
    torch.save(torch.nn.Linear(16, 1).state_dict(), other / "sparse_linear.pt")
    with pytest.raises(ConfigError, match="do not fit together"):
        SparseEncoder.load(other)


def test_gradients_equal_plain_pytorch() -> None:
    """Values and gradients against a loop; a term that several tokens are gets the gradient of the heaviest one."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 7, 5, generator=generator, dtype=torch.float64)
    layer = torch.nn.Linear(5, 1).double()
    layer.weight.data.copy_(torch.randn(1, 5, generator=generator))
    layer.bias.data.fill_(3.0)
    ids = torch.tensor([[0, 4, 5, 4, 4, 2, 1], [0, 6, 6, 6, 3, 8, 2], [0, 9, 2, 1, 1, 1, 1]])
    pooled = torch.tensor([[1] * 6 + [0], [1] * 7, [1, 1, 1, 0, 0, 0, 0]]) > 0
    unweighted = torch.zeros(10, dtype=torch.bool)
    unweighted[[0, 1, 2, 3]] = True
    slopes = torch.randn(3, 10, generator=generator, dtype=torch.float64)
    results = []
    for plain in (False, True):
        states = hidden.clone().requires_grad_()
        layer.zero_grad()
        if plain:
            rows = []
            for text in range(3):
                row = [torch.zeros((), dtype=torch.float64)] * 10
                for place in range(7):
                    number = int(ids[text, place])
                    value = torch.relu(layer(states[text, place]))[0]
                    if number not in (0, 1, 2, 3) and pooled[text, place] and value > row[number]:
                        row[number] = value
                rows.append(torch.stack(row))
            vectors = torch.stack(rows)
        else:
            vectors = pool_token_weights(states, layer, ids, pooled, unweighted)
        (vectors * slopes).sum().backward()
        results.append((vectors.detach(), states.grad, layer.weight.grad.clone(), layer.bias.grad.clone()))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)
    assert int((results[0][0] > 0).sum()) >= 3


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_bundle_equals_model_and_pools_in_its_graph(model: Path, tmp_path: Path, precision: Any) -> None:
    target = tmp_path / "bundle"
    export_bundle(ExportSettings(model=str(model), output=str(target), precision=precision))
    encoder, exported = SparseEncoder.load(model), BundleEncoder(target, verify=True)
    ours, theirs = encoder.encode(TEXTS), exported.encode(TEXTS, kind="document")
    tolerance = {"fp32": 1e-5, "fp16": 1e-2, "int8": 0.15}[precision]
    for i in range(len(TEXTS)):
        one, other = (dict(zip(*(a.tolist() for a in batch.row(i)), strict=True)) for batch in (ours, theirs))
        for term in one.keys() | other.keys():
            assert one.get(term, 0.0) == pytest.approx(other.get(term, 0.0), abs=tolerance)
    import onnx

    graph = onnx.load(target / "model.onnx").graph
    operators = [node.op_type for node in graph.node]
    assert {"ScatterElements", "TopK"} <= set(operators)
    assert [value.name for value in graph.output] == ["terms", "weights"]


@pytest.mark.long
def test_search_scores_equal_dot_products(folder: Path, bundle: Path, tmp_path: Path) -> None:
    texts = {f"d{i}": text for i, text in enumerate(TEXTS)}
    make_table(tmp_path / "table", encode_corpus(bundle, texts), bundle)
    index = {"table": str(tmp_path / "table"), "bundle": str(bundle), "output": str(tmp_path / "index"), "shards": 2}
    build_index(Deployment(index=IndexSettings(**index)))
    searcher = Searcher.open(tmp_path / "index", verify=True)
    step = searcher.snapshot.version.impact_step
    documents = {}
    for name, text in texts.items():
        expected = lexical_weights(folder, text, 64)
        impacts, _ = quantize(np.array(list(expected.values()), np.float32), step, 8)
        documents[name] = dict(zip(expected, (impacts * step).tolist(), strict=True))
    for query in ("which thread has the lock", "file date", "Datei lesen"):
        vector = lexical_weights(folder, query, 64)
        scores = {
            name: sum(weight * document.get(term, 0.0) for term, weight in vector.items())
            for name, document in documents.items()
        }
        hits = searcher.search(query, 20).hits
        assert {hit.doc_id for hit in hits} == {name for name, score in scores.items() if score > 0}
        for hit in hits:
            assert hit.score == pytest.approx(scores[hit.doc_id], rel=0.02)  # an impact can be rounded the other way


def test_inference_free_queries_work_with_token_weights(folder: Path) -> None:
    encoder = SparseEncoder.load(folder, query_encoder="idf", document_max_length=40)
    assert encoder.card.query_encoder == "idf"
    assert len(encoder.encode(SENTENCES).terms)


def test_settings_and_stages_without_effect_are_refused(model: Path, tmp_path: Path) -> None:
    for name, value in {"activation": "l0", "pooled_tokens": "not_bos", "pooled_states": "mean"}.items():
        with pytest.raises(ConfigError, match="head of token weights"):
            SparseEncoder.load(model, **{name: value})
    facts = ModelFacts.of(SparseEncoder.load(model))
    data = {"paths": [str(tmp_path / "rows.jsonl")], "kind": "texts"}
    stages: dict[str, dict[str, Any]] = {
        "rescale_head": {"alpha": 2.0},
        "calibrate": {"shift": 1.0},
        "expand_vocabulary": {"data": data, "size": 50},
        "set_encoder": {"output_casing": "uncased"},
        "finetune": {"scale": {"lora": {"rank": 2}}},
    }
    assert stages.keys() <= REGISTRY.keys()
    for kind, values in stages.items():
        given = small_training(tmp_path, model)
        if kind == "finetune":
            given = small_training(tmp_path, model, **values)
        else:
            given["train"]["stages"] = [{"stage": kind, **values}]
        train = Deployment.model_validate(given).train
        assert train is not None
        with pytest.raises(ConfigError, match="head of token weights"):
            check_stage(train.stages[0], train, facts, {})
    with pytest.raises(ConfigError, match="no vocabulary head"):
        inspect_vocabulary(str(model), target=None, target_embeddings=None, words=[], texts=[])
    (tmp_path / "probe.jsonl").write_text('{"text": "a lock"}\n')
    settings = ExportSettings(
        model=str(model), output=str(tmp_path / "bundle"), probe_texts=str(tmp_path / "probe.jsonl")
    )
    with pytest.raises(ConfigError, match=r"export\.probe_texts"):
        export_bundle(settings)


def test_loaded_backbone_has_no_pooling_layer(model: Path) -> None:
    encoder = SparseEncoder.load(model)
    assert isinstance(encoder.model, XLMRobertaModel)
    assert not any("pooler" in name for name, _ in encoder.model.named_parameters())
