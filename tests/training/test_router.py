"""A Router of sentence-transformers is trained, saved as a Router again, exported and searched."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder as Peer
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from lsr_prod.config import Deployment, ExportSettings
from lsr_prod.inference import BundleEncoder
from lsr_prod.inference.terms.words import TermReader
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle
from lsr_prod.training.chain import run_chain
from tests.model.test_layouts import TEXTS, assert_equal, field_folder, ours
from tests.training.small import small_training

ROWS = [
    {"query": "read a file", "positive": "Open a file and read its lines.", "negatives": ["A lock of a thread."]},
    {"query": "lock a thread", "positive": "A lock of a thread 🙂.", "negatives": ["Parse a date string."]},
    {"query": "parse date ½", "positive": "Parse a date string.", "negatives": ["Open a file and read its lines."]},
]


def train(source: Path, folder: Path, **stage: object) -> Path:
    """Train a model for 20 steps; return its directory."""
    settings = small_training(folder, source, steps=20, checkpoint_every=20, **stage)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS * 8))
    run_chain(Deployment.model_validate(settings))
    return folder / "out"


def random_router(tokenizer: Path, folder: Path) -> Path:
    """Save a Router with the library: 30,522 terms, random weights, some of which are 0."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        words = AutoTokenizer.from_pretrained(tokenizer)
        size = len(words.get_vocab())
        sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
        config = BertConfig(vocab_size=size, max_position_embeddings=80, initializer_range=0.3, **sizes)
        BertForMaskedLM(config).save_pretrained(folder / "plain")
        words.save_pretrained(folder / "plain")
        weights = torch.rand(size).mul(3).where(torch.rand(size) < 0.9, torch.zeros(()))
        weights[words.all_special_ids] = 0
    words.model_max_length = 20
    document = [Transformer(str(folder / "plain"), transformer_task="fill-mask", max_seq_length=40), SpladePooling()]
    query = SparseStaticEmbedding(words, weights)
    Peer(modules=[Router.for_query_document([query], document)], device="cpu").save(str(folder / "router"))
    return folder / "router"


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
@pytest.mark.parametrize("kind", ["field", pytest.param("random", marks=pytest.mark.slow)])
def test_trained_router_opens_in_sentence_transformers(
    kind: str, shared_data: Path, splade_tiny: Path, tmp_path: Path
) -> None:
    source = field_folder(shared_data, "router") if kind == "field" else random_router(splade_tiny, tmp_path)
    before = SparseEncoder.load(source)
    assert_equal(before, source)
    made = train(source, tmp_path)
    encoder = SparseEncoder.load(made)
    assert encoder.card.query_encoder == "learned"
    assert not torch.equal(encoder.query_weights, before.query_weights)
    assert torch.equal(encoder.query_weights == 0, before.query_weights == 0)  # a term of weight 0 stays out
    assert np.abs(ours(encoder, "document") - ours(before, "document")).max() > 1e-3
    assert_equal(encoder, made)
    export_bundle(ExportSettings(model=str(made), output=str(tmp_path / "bundle"), top_k=512))
    reader, weights = TermReader.open(tmp_path / "bundle"), encoder.query_weights.numpy()
    peer = Peer(str(made), device="cpu").encode_query(TEXTS, convert_to_sparse_tensor=False).numpy()
    for text, row in zip(TEXTS, peer, strict=True):
        assert {term for term in reader.query(text).ids if weights[term]} == set(np.flatnonzero(row).tolist())
    documents = BundleEncoder(tmp_path / "bundle").encode(TEXTS, kind="document", top_k=512)
    for i, row in enumerate(ours(encoder, "document")):
        terms, found = documents.row(i)
        np.testing.assert_allclose(found, row[terms], atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_local")
def test_factor_0_keeps_the_query_weights(shared_data: Path, tmp_path: Path) -> None:
    source = field_folder(shared_data, "router")
    made = SparseEncoder.load(train(source, tmp_path, query_weights={"learning_rate_factor": 0}))
    torch.testing.assert_close(made.query_weights, SparseEncoder.load(source).query_weights)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_local")
def test_idf_model_has_the_weights_of_its_training(splade_tiny: Path, tmp_path: Path) -> None:
    SparseEncoder.load(splade_tiny, query_encoder="idf", document_max_length=30).save(tmp_path / "start")
    losses = {"losses": [{"loss": "info_nce"}]}  # a regularizer of queries has no effect
    made = train(tmp_path / "start", tmp_path, objective=losses)
    encoder = SparseEncoder.load(made)
    common, rare = (encoder.query_weights[encoder.vocabulary.index(word)] for word in ("a", "file"))
    assert 0 < common < rare
    assert_equal(encoder, made)
