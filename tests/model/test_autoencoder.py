"""CSR models of sentence-transformers: import, equal vectors, save, export, search, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SparseEncoder as Peer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

from lsr_prod.config import Deployment, ExportSettings, IndexSettings
from lsr_prod.errors import ConfigError
from lsr_prod.indexing import build_index
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle
from lsr_prod.search import Searcher
from lsr_prod.training.stages.registry import check_stage
from lsr_prod.training.stages.stage_facts import ModelFacts
from tests.indexing.corpus import encode_corpus, make_table
from tests.model.test_layouts import TEXTS, assert_equal, ours
from tests.model.tiny import tiny_checkpoint
from tests.training.small import small_training

pytestmark = pytest.mark.usefixtures("traced_once")
LATENTS, K = 60, 6


def csr(
    folder: Path, *, mode: str = "mean", unit: bool = False, standard: bool = False, architecture: str = "bert"
) -> Path:
    """Save a CSR model of a tiny checkpoint with the library."""
    checkpoint = tiny_checkpoint(folder / "checkpoint", architecture)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layer = SparseAutoEncoder(32, LATENTS, k=K, k_aux=9, normalize=standard)
        for parameter in layer.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
    between = [Normalize()] if unit else []
    modules = [Transformer(str(checkpoint), max_seq_length=16), Pooling(32, mode), *between, layer]
    Peer(modules=modules, device="cpu", prompts={"query": "w3 "}).save(str(folder / "csr"))
    return folder / "csr"


def change(folder: Path, name: str, **values: Any) -> None:
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(content | values))


@pytest.mark.parametrize(
    ("mode", "unit", "standard", "architecture"),
    [
        ("mean", False, False, "bert"),
        ("cls", True, False, "roberta"),
        ("mean", False, True, "distilbert"),
        ("cls", True, True, "modernbert"),
    ],
)
def test_vectors_are_equal_before_and_after_save(
    mode: str, unit: bool, standard: bool, architecture: str, tmp_path: Path
) -> None:
    folder = csr(tmp_path, mode=mode, unit=unit, standard=standard, architecture=architecture)
    encoder = SparseEncoder.load(folder)
    assert (encoder.card.head, encoder.card.max_terms, encoder.card.query_prompt) == ("autoencoder", K, "w3 ")
    assert encoder.vocabulary[17] == "latent_17"
    assert_equal(encoder, folder)
    digest = encoder.save(tmp_path / "model")
    assert_equal(SparseEncoder.load(tmp_path / "model"), tmp_path / "model")
    assert SparseEncoder.load(tmp_path / "model").save(tmp_path / "again") == digest


def test_older_layout_and_another_limit_are_read(tmp_path: Path) -> None:
    folder = csr(tmp_path)
    older = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(older))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9, "do_lower_case": True}))
    change(folder, "config_sentence_transformers.json", max_active_dims=3)
    encoder = SparseEncoder.load(folder)
    assert (encoder.card.pooled_states, encoder.card.max_terms, encoder.card.casing) == ("first", 3, "lowercase")
    assert_equal(encoder, folder)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "int8", "fp16"])
def test_bundle_has_the_latents_of_the_model(precision: Any, tmp_path: Path) -> None:
    folder = csr(tmp_path, unit=True)
    settings = ExportSettings(
        model=str(folder), output=str(tmp_path / "bundle"), precision=precision, int8_min_overlap=0.7
    )
    figures = export_bundle(settings)
    assert figures["top_k"] == K
    bundle = BundleEncoder(tmp_path / "bundle")
    assert bundle.vocabulary[:2] == ["latent_0", "latent_1"]
    encoder = SparseEncoder.load(folder)
    for kind in ("query", "document"):
        ours, theirs = bundle.encode(TEXTS, kind=kind), encoder.encode(TEXTS, kind)
        if precision == "fp32":
            np.testing.assert_array_equal(ours.terms, theirs.terms)
            np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-4)
        assert np.diff(ours.offsets).max() <= K


@pytest.mark.long
def test_search_finds_documents_by_latents(tmp_path: Path) -> None:
    folder = csr(tmp_path, unit=True)
    bundle, index = tmp_path / "bundle", tmp_path / "index"
    export_bundle(ExportSettings(model=str(folder), output=str(bundle)))
    texts = {f"d{i}": text for i, text in enumerate(TEXTS) if text.strip()}
    make_table(tmp_path / "table", encode_corpus(bundle, texts), bundle)
    settings = {"table": str(tmp_path / "table"), "bundle": str(bundle), "output": str(index), "shards": 1}
    build_index(Deployment(index=IndexSettings(**settings)))
    dense = ours(SparseEncoder.load(folder), "document")
    query = ours(SparseEncoder.load(folder), "query")[0]
    hits = Searcher.open(index).search(TEXTS[0], 3).hits
    expected = dense @ query
    assert [expected[int(hit.doc_id[1:])] for hit in hits] == pytest.approx(np.sort(expected)[::-1][:3], rel=0.02)


@pytest.mark.parametrize(
    ("name", "values", "match"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "it pools by lasttoken"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "it pools by cls, mean"),
        ("1_Pooling/config.json", {"include_prompt": False}, "it pools by mean without the prompt"),
        ("2_SparseAutoEncoder/config.json", {"k": 0}, "its k is 0"),
        ("2_SparseAutoEncoder/config.json", {"batch_topk": True}, "sets batch_topk to true"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "its transformer_task is"),
    ],
)
def test_settings_that_cannot_be_honored_are_refused(
    name: str, values: dict[str, Any], match: str, tmp_path: Path
) -> None:
    folder = csr(tmp_path)
    change(folder, name, **values)
    with pytest.raises(ConfigError, match=match):
        SparseEncoder.load(folder)


@pytest.mark.parametrize("problem", ["absent", "damaged", "width", "bias", "key"])
def test_weights_that_do_not_fit_are_refused(problem: str, tmp_path: Path) -> None:
    path = csr(tmp_path) / "2_SparseAutoEncoder" / "model.safetensors"
    tensors = load_file(path)
    if problem == "absent":
        path.unlink()
    elif problem == "damaged":
        path.write_bytes(b"x")
    else:
        changed = {"width": "decoder.linear.weight", "bias": "latent_bias", "key": "pre_bias"}[problem]
        kept = {name: value for name, value in tensors.items() if name != changed or problem != "key"}
        save_file({name: v[..., :-1].contiguous() if name == changed else v for name, v in kept.items()}, path)
    with pytest.raises(ConfigError, match=r"^source: "):
        SparseEncoder.load(path.parent.parent)


def test_what_has_no_meaning_for_latents_is_refused(tmp_path: Path) -> None:
    folder = csr(tmp_path)
    for changes in ({"query_encoder": "idf"}, {"output_casing": "uncased"}, {"pooled_states": "tokens"}):
        with pytest.raises(ConfigError, match="a sparse autoencoder"):
            SparseEncoder.load(folder, **changes)
    encoder = SparseEncoder.load(folder)
    with pytest.raises(ConfigError, match="has no separate query encoder"):
        encoder.with_queries(encoder)
    train = Deployment.model_validate(small_training(tmp_path, folder)).train
    assert train is not None
    with pytest.raises(ConfigError, match="train it with sentence-transformers"):
        check_stage(train.stages[0], train, ModelFacts.of(encoder), {})
