"""Scores of every kind of teacher are those of plain PyTorch, or of sentence-transformers, one pair at a time."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertForSequenceClassification

from lsr_prod.errors import ConfigError
from lsr_prod.training.scoring.teacher import PairScorer, open_teacher
from tests.training.scoring.conftest import NOT_A_NUMBER, RAISES, config, random_pairs, save, teacher

PAIRS = random_pairs(40)
SENTENCES = [
    ("how does a thread wait for a lock", "A lock is released by the thread that holds it."),
    ("square root", "Return the square root of a number."),
    ("square root", "A lock is released by the thread that holds it."),
    ("parse JSON", "Parse a JSON string into a Python object and raise an error where it is malformed." * 9),
]


def opened(folder: Path, kind: str = "cross_encoder", batch_tokens: int = 256, **changes: Any) -> PairScorer:
    return open_teacher(folder, teacher(folder, kind, **changes), batch_tokens=batch_tokens, field="score.teacher")


def scores(folder: Path, kind: str = "cross_encoder", pairs: Any = PAIRS, **changes: Any) -> Any:
    found, failed = opened(folder, kind, **changes).score(pairs)
    assert failed == {}
    return found


@torch.inference_mode()
def plain_logits(folder: Path, longest: int = 48) -> Any:
    """Logits [n, outputs], one pair per call."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    read = AutoTokenizer.from_pretrained(folder)
    calls = [read(*pair, truncation="longest_first", max_length=longest, return_tensors="pt") for pair in PAIRS]
    return np.stack([model(**call).logits[0].numpy() for call in calls])


def test_cross_encoder_gives_the_logits_of_single_pairs(cross_encoder: Path):
    expected = plain_logits(cross_encoder)[:, 0]
    assert expected.std() > 0.1
    np.testing.assert_allclose(scores(cross_encoder), expected, atol=1e-5)
    np.testing.assert_allclose(scores(cross_encoder, batch_tokens=1), expected, atol=1e-5)
    np.testing.assert_allclose(scores(cross_encoder, max_length=12), plain_logits(cross_encoder, 12)[:, 0], atol=1e-5)


def test_cross_encoder_agrees_with_sentence_transformers(cross_encoder: Path, tmp_path: Path):
    peer = CrossEncoder(str(cross_encoder))
    peer.save_pretrained(str(tmp_path / "peer"))
    raw = peer.predict(PAIRS, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(scores(tmp_path / "peer"), raw, atol=1e-5)
    np.testing.assert_allclose(scores(tmp_path / "peer", activation="sigmoid"), peer.predict(PAIRS), atol=1e-5)
    np.testing.assert_allclose(scores(tmp_path / "peer", scale=3), 3 * raw, atol=1e-4)


def test_two_outputs_give_the_logit_of_the_label(tmp_path: Path):
    torch.manual_seed(2)
    folder = save(BertForSequenceClassification(config(num_labels=2)), tmp_path / "two")
    expected = plain_logits(folder)
    np.testing.assert_allclose(scores(folder), expected[:, 1], atol=1e-5)
    np.testing.assert_allclose(scores(folder, label=0), expected[:, 0], atol=1e-5)


def test_scores_in_bf16_are_close(cross_encoder: Path):
    assert np.abs(scores(cross_encoder, precision="bf16") - scores(cross_encoder)).max() < 0.3


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [False, True])
@torch.inference_mode()
def test_dense_scores_are_dot_products_of_pooled_states(dense: Path, pooling: str, normalize: bool):
    model, read = AutoModel.from_pretrained(dense).eval(), AutoTokenizer.from_pretrained(dense)

    def vector(text: str) -> Any:
        states = model(**read(text, truncation=True, max_length=48, return_tensors="pt")).last_hidden_state[0]
        pooled = states[0] if pooling == "cls" else states.mean(dim=0)
        return pooled / pooled.norm() if normalize else pooled

    expected = [float(vector(f"w1 {query}") @ vector(f"w2 {document}")) for query, document in PAIRS]
    prompts = {"query_prompt": "w1 ", "document_prompt": "w2 "}
    found = scores(dense, "dense", pooling=pooling, normalize=normalize, **prompts)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["new", "old"])
def test_dense_folder_of_sentence_transformers_needs_no_settings(dense: Path, tmp_path: Path, layout: str):
    transformer = Transformer(str(dense), max_seq_length=20)
    modules = [transformer, Pooling(32, "cls"), Normalize()]
    peer = SentenceTransformer(modules=modules, prompts={"query": "w3 ", "document": "w4 "})
    peer.save_pretrained(str(folder := tmp_path / "peer"))
    if layout == "old":
        modes = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}')
    queries = peer.encode_query([query for query, _ in PAIRS])
    documents = peer.encode_document([document for _, document in PAIRS])
    np.testing.assert_allclose(scores(folder, "dense"), (queries * documents).sum(axis=1), atol=1e-5)


@pytest.mark.long
def test_sparse_model_and_bundle_give_dot_products(tiny_model: Path, tiny_bundle: Path):
    peer = SparseEncoder(str(tiny_model))
    queries = peer.encode_query([query for query, _ in SENTENCES]).to_dense().numpy()
    documents = peer.encode_document([document for _, document in SENTENCES]).to_dense().numpy()
    expected = (queries * documents).sum(axis=1)
    np.testing.assert_allclose(scores(tiny_model, "sparse", SENTENCES), expected, rtol=1e-4)
    np.testing.assert_allclose(scores(tiny_bundle, "sparse", SENTENCES), expected, rtol=2e-2)  # the bundle keeps top_k
    np.testing.assert_allclose(
        scores(tiny_model, "sparse", SENTENCES, precision="bf16"), expected, rtol=0.05, atol=0.05
    )


def test_each_text_is_encoded_once_until_forgotten(dense: Path, monkeypatch: pytest.MonkeyPatch):
    from lsr_prod.training.scoring.transformers import DenseEncoder

    encoded: list[str] = []
    encode = DenseEncoder.encode
    monkeypatch.setattr(
        DenseEncoder, "encode", lambda self, texts, kind: encoded.extend(texts) or encode(self, texts, kind)
    )  # type: ignore[func-returns-value]
    scorer = opened(dense, "dense", pooling="mean")
    encoded.clear()
    pairs = [("w1", "w2"), ("w1", "w3"), ("w4", "w2"), ("w2", "w1")]
    first, _ = scorer.score(pairs)
    again, _ = scorer.score(pairs[::-1])
    assert sorted(encoded) == ["w1", "w1", "w2", "w2", "w3", "w4"]  # w1 and w2 as query and as document
    assert first.tolist() == again[::-1].tolist()
    scorer.forget()
    scorer.score(pairs)
    assert len(encoded) == 12


@pytest.mark.parametrize("kind", ["cross_encoder", "dense"])
@pytest.mark.parametrize("place", ["query", "document"])
def test_poisonous_texts_fail_alone(cross_encoder: Path, dense: Path, kind: str, place: str):
    folder, changes = (cross_encoder, {}) if kind == "cross_encoder" else (dense, {"pooling": "mean"})
    pairs = list(PAIRS)
    for i, word in ((5, RAISES), (17, NOT_A_NUMBER), (18, RAISES)):
        query, document = pairs[i]
        pairs[i] = (f"{word} {query}", document) if place == "query" else (query, f"{word} {document}")
    found, failed = opened(folder, kind, **changes).score(pairs)
    assert sorted(failed) == [5, 17, 18]
    assert "IndexError" in failed[5]
    assert "NaN" in failed[17]
    good = [i for i in range(len(pairs)) if i not in failed]
    assert np.isnan(found[[5, 17, 18]]).all()
    np.testing.assert_allclose(found[good], scores(folder, kind, **changes)[good], atol=2e-5)


def refused(folder: Path, sentence: str, kind: str = "cross_encoder", **changes: Any) -> None:
    with pytest.raises(ConfigError, match=sentence):
        opened(folder, kind, **changes)


def test_model_of_another_kind_is_refused(cross_encoder: Path, dense: Path, tiny_model: Path, tmp_path: Path):
    refused(dense, r"^score\.teacher\.model: .* no weights for classifier\.bias, classifier\.weight: it is not trained")
    refused(tiny_model, r"^score\.teacher\.model: .* sentence-transformers model of .*SpladePooling")
    refused(tiny_model, r"^score\.teacher\.model: .* its modules are .*SpladePooling", "dense")
    refused(dense, r"^score\.teacher\.model: ", "sparse")
    refused(dense, r"^score\.teacher\.pooling: .* set it to mean or cls", "dense")
    refused(tmp_path, r"^score\.teacher\.model: transformers cannot read")
    refused(cross_encoder, r"^score\.teacher\.label: .* has one output", label=1)
    refused(cross_encoder, r"^score\.teacher\.max_length: 49 is more than the 48 tokens", max_length=49)
    refused(dense, r"^score\.teacher\.max_length: 49 is more than the 48", "dense", pooling="cls", max_length=49)
    three = save(BertForSequenceClassification(config(num_labels=3)), tmp_path / "three")
    refused(three, r"^score\.teacher\.model: .* has 3 outputs")


def test_model_without_finite_scores_is_refused(cross_encoder: Path, tmp_path: Path):
    model = BertForSequenceClassification.from_pretrained(cross_encoder)
    torch.nn.init.constant_(model.classifier.bias, float("nan"))
    folder = Path(shutil.copytree(cross_encoder, tmp_path / "nan"))
    model.save_pretrained(folder)
    refused(folder, r"^score\.teacher\.model: .* cannot score a plain word \(the model returned NaN")


def test_bundle_with_a_precision_and_inference_free_queries_are_refused(
    tiny_bundle: Path, tiny_model: Path, tmp_path: Path
):
    from lsr_prod import SparseEncoder as OurEncoder

    refused(tiny_bundle, r"^score\.teacher\.precision: .* is a bundle", "sparse", precision="bf16")
    OurEncoder.load(tiny_model, query_encoder="idf").save(tmp_path / "idf")
    refused(tmp_path / "idf", r"^score\.teacher\.model: queries of .* are inference-free", "sparse")
