import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SparseEncoder as Peer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.storage.formats.sparse import SparseBatch
from tests.model.tiny import ARCHITECTURES, tiny_checkpoint

TEXTS = ["w1 W2 w3", "w5", "W0 w1 " * 40, "w1 w91 nothing-known"]
REAL = ["Learned sparse retrieval", "how does an inverted index work?", "Zürich 東京 " * 100, "a"]


def _dense(batch: SparseBatch, size: int) -> np.ndarray:
    rows = np.zeros((len(batch), size), np.float32)
    for i, row in enumerate(rows):
        terms, weights = batch.row(i)
        row[terms] = weights
    return rows


def _peer(folder: Path) -> Peer:
    return Peer(str(folder), device="cpu", local_files_only=True)


def test_second_save_has_same_digest_and_changes_nothing(tmp_path: Path) -> None:
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert"), document_max_length=20)
    digest = encoder.save(tmp_path / "a")
    assert digest == encoder.save(tmp_path / "a") == model_digest(tmp_path / "a")
    again = SparseEncoder.load(tmp_path / "a")
    assert again.card == encoder.card
    assert again.save(tmp_path / "b") == digest
    assert SparseEncoder.load(tmp_path / "a", document_max_length=21).save(tmp_path / "c") != digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "checkpoint"], "no drafts are left"


def test_save_refuses_folder_with_other_content(tmp_path: Path) -> None:
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="has other content"):
        encoder.save(tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["mine.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "other"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sentence_transformers_opens_model_directory(tmp_path: Path, architecture: str) -> None:
    encoder = SparseEncoder.load(
        tiny_checkpoint(tmp_path / "checkpoint", architecture),
        casing="lowercase",
        query_prompt="w7 ",
        document_prompt="w9 ",
        query_max_length=40,
        document_max_length=40,
        activation="l0",
    )
    encoder.save(tmp_path / "model")
    peer, size = _peer(tmp_path / "model"), encoder.card.vocabulary_size
    documents = peer.encode_document(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(documents, _dense(encoder.encode(TEXTS), size), atol=1e-5)
    queries = peer.encode_query(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(queries, _dense(encoder.encode(TEXTS, "query"), size), atol=1e-5)
    assert not np.allclose(documents, queries, atol=1e-3), "the prompts differ"


@pytest.mark.long
def test_real_checkpoint_is_read_and_written_by_sentence_transformers(tiny_model: Path, tmp_path: Path) -> None:
    encoder, peer = SparseEncoder.load(tiny_model), _peer(tiny_model)
    size = encoder.card.vocabulary_size
    ours = _dense(encoder.encode(REAL), size)
    np.testing.assert_allclose(peer.encode_document(REAL, convert_to_sparse_tensor=False).numpy(), ours, atol=1e-5)
    peer.save(str(tmp_path / "saved"))
    back = SparseEncoder.load(tmp_path / "saved")
    np.testing.assert_allclose(_dense(back.encode(REAL), size), ours, atol=1e-5)
    assert back.card.document_max_length == encoder.card.document_max_length
    assert back.card.parents == (model_digest(tmp_path / "saved"),)


def test_folder_saved_by_sentence_transformers_is_loaded(splade_tiny: Path, tmp_path: Path) -> None:
    transformer = Transformer(str(splade_tiny), transformer_task="fill-mask", do_lower_case=True)
    peer = Peer(
        modules=[transformer, SpladePooling(pooling_strategy="max", activation_function="log1p_relu")],
        prompts={"query": "find: ", "document": "text: "},
        device="cpu",
    )
    peer.max_seq_length = 12
    peer.save(str(tmp_path / "saved"))
    encoder = SparseEncoder.load(tmp_path / "saved")
    card = encoder.card
    assert (card.query_max_length, card.document_max_length, card.activation) == (12, 12, "l0")
    assert (card.query_prompt, card.document_prompt, card.casing) == ("find: ", "text: ", "lowercase")
    for kind, encode in (("query", peer.encode_query), ("document", peer.encode_document)):
        theirs = encode(REAL, convert_to_sparse_tensor=False).numpy()
        np.testing.assert_allclose(_dense(encoder.encode(REAL, kind), card.vocabulary_size), theirs, atol=1e-5)


@pytest.mark.parametrize("change", ["sum", "dense", "outside"])
def test_other_sentence_transformers_models_are_refused(tmp_path: Path, change: str) -> None:
    SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert")).save(tmp_path / "model")
    (tmp_path / "model" / "encoder_card.json").unlink()
    modules = json.loads((tmp_path / "model" / "modules.json").read_text())
    if change == "sum":
        (tmp_path / "model" / "1_SpladePooling" / "config.json").write_text('{"pooling_strategy": "sum"}')
    elif change == "dense":
        modules[1]["type"] = "sentence_transformers.models.Pooling"
    else:
        modules[0]["path"] = "../checkpoint"
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigError, match="is a sentence-transformers model, but"):
        SparseEncoder.load(tmp_path / "model")
