"""Output vocabulary of more words than 16 bits can number, from the bundle to the hits and their explanations."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from lsr_prod import SparseEncoder
from lsr_prod.config import Deployment, ExportSettings
from lsr_prod.encoding import encode_corpus
from lsr_prod.indexing import build_index
from lsr_prod.inference import BundleEncoder
from lsr_prod.model.export import export_bundle
from lsr_prod.model.output_layer import replace_output_layer
from lsr_prod.search import Searcher
from lsr_prod.storage.formats.digests import digest_json
from tests.model.tiny import VOCABULARY, tiny_checkpoint

SIZE = 70_001
LAST = SIZE - 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model whose active terms are every 900th term and the last; all other biases are far below zero."""
    folder = tmp_path_factory.mktemp("words")
    encoder = SparseEncoder.load(tiny_checkpoint(folder / "checkpoint", "bert"))
    words = [f"term{i}" for i in range(SIZE)]
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(SIZE, 32, generator=generator)
    bias = torch.full((SIZE,), -1000.0)
    bias[torch.arange(LAST, 0, -900)] = 1.0
    replace_output_layer(encoder.model, weight, bias)
    card = replace(encoder.card, vocabulary_size=SIZE, vocabulary_sha256=digest_json(words), output_vocabulary="words")
    SparseEncoder(encoder.model, encoder.tokenizer, card, words).save(folder / "model")
    return folder / "model"


def _texts(count: int) -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(VOCABULARY[i] for i in rng.integers(8, 97, 7)) for _ in range(count)]


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_words_beyond_16_bits_survive_from_bundle_to_explanation(model: Path, tmp_path: Path) -> None:
    texts = _texts(40)
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts))
    )
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    bundle = tmp_path / "bundle"
    export_bundle(
        ExportSettings(model=str(model), output=str(bundle), top_k=64, parity_texts=str(tmp_path / "texts.jsonl"))
    )
    deployment = Deployment.model_validate(
        yaml.safe_load(f"""
source: {{paths: ["{tmp_path}/corpus.jsonl"]}}
encode: {{bundle: "{bundle}", table: "{tmp_path}/table", store_k: 64}}
index: {{table: "{tmp_path}/table", bundle: "{bundle}", output: "{tmp_path}/index"}}
""")
    )
    assert encode_corpus(deployment).quarantined == 0
    build_index(deployment)
    encoder, runtime = SparseEncoder.load(model), BundleEncoder(bundle)
    assert runtime.vocabulary == encoder.vocabulary
    assert len(runtime.vocabulary) == SIZE
    searcher = Searcher.open(tmp_path / "index")
    vectors = encoder.encode(texts).top(64)
    assert max(int(vectors.row(i)[0].max()) for i in range(40)) > np.iinfo(np.uint16).max
    dense = np.zeros((40, SIZE), np.float32)
    for i in range(40):
        dense[i, vectors.row(i)[0]] = vectors.row(i)[1]
    scores = dense @ dense.T
    for i in (0, 7, 39):
        terms, weights = vectors.row(i)
        hits = searcher.search(texts[i], k=3).hits
        assert scores[i, int(hits[0].doc_id[1:])] > 0.98 * scores[i].max(), "best up to 8-bit errors"
        explanation = searcher.explain(texts[i], f"d{i}")
        named = {one.term for one in explanation.contributions}
        assert named <= {encoder.vocabulary[term] for term in terms}
        assert encoder.vocabulary[int(terms[0])] in named
        by_words = {encoder.vocabulary[int(t)]: float(w) for t, w in zip(terms, weights, strict=True)}
        assert searcher.search_vector(by_words, k=1).hits[0].doc_id == hits[0].doc_id
