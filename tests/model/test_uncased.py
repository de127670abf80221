import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from transformers import BertForMaskedLM

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.card_update import UncasedOutput
from lsr_prod.model.export.graph import export_graph, quantize_graph
from lsr_prod.model.pooled_head import find_argmax
from tests.model.tiny import VOCABULARY, tiny_checkpoint

# Apple has a lowercase form. Usa, USA and uSA have none and are one word. ##Ed continues a word.
TERMS = ["[CLS]", "apple", "Apple", "USA", "##ed", "##Ed", "Usa", "of", "uSA", "Paris", "##ING"]


def _batch(rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(8, 97, (rows, length), generator=torch.Generator().manual_seed(rows))
    mask = torch.ones_like(ids)
    mask[1:, length // 2 :] = 0
    return ids, mask


def test_fold_equals_result_by_hand() -> None:
    fold = UncasedOutput(TERMS)
    assert fold.terms == ["[CLS]", "apple", "usa", "##ed", "of", "paris", "##ing"]
    weights = torch.tensor([[1.0, 2, 9, 3, 4, 9, 5, 6, 4, 7, 8], [0, 0, 9, 0, 0, 9, 0, 0, 2, 0, 0]])
    assert fold(weights).tolist() == [[1, 2, 5, 4, 6, 7, 8], [0, 0, 2, 0, 0, 0, 0]]


def test_gradient_goes_to_heaviest_form() -> None:
    weights = torch.tensor([[1.0, 2, 9, 3, 4, 9, 5, 6, 4, 7, 8]], requires_grad=True)
    (UncasedOutput(TERMS)(weights) * torch.arange(1.0, 8)).sum().backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [[1, 2, 0, 0, 4, 0, 3, 5, 0, 6, 7]]


@pytest.mark.parametrize(("terms", "problem"), [(["AB", "C1", "##D"], "lowercase letter"), (["ab", "c1"], "is cased")])
def test_vocabulary_without_uncased_form_is_refused(terms: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"output_casing: no output term .*{problem}"):
        UncasedOutput(terms)


@pytest.mark.parametrize("architecture", ["bert", "qwen3"])
def test_torch_training_and_graph_agree(tmp_path: Path, architecture: str) -> None:
    """W0, W2, ... exist only cased, w1, w3, ... only lowercase: every word stays, in lowercase."""
    plain = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", architecture))
    encoder = plain.with_card(output_casing="uncased")
    assert encoder.card.vocabulary_size == len(encoder.vocabulary) == 97
    assert encoder.vocabulary == [term.lower() for term in VOCABULARY]
    encoder.save(tmp_path / "model")
    again = SparseEncoder.load(tmp_path / "model")
    assert again.card == encoder.card
    assert again.vocabulary == encoder.vocabulary
    ids, mask = _batch(3, 12)
    with torch.inference_mode():
        expected = plain(ids, mask)
        torch.testing.assert_close(again(ids, mask), expected)
    found = encoder.find_argmax(ids, mask)
    torch.testing.assert_close(encoder(ids, mask, found=found), encoder.fold(found.weights))
    assert again.with_card(output_casing="all").card.vocabulary_sha256 == plain.card.vocabulary_sha256


def test_vocabulary_with_both_forms_keeps_one(tmp_path: Path) -> None:
    """Half of the terms have a cased twin, which is dropped; USA and Usa become one term."""
    encoder = _twins(tmp_path)
    size = len(encoder.vocabulary)
    assert {"usa", "w1", "w2"} <= set(encoder.vocabulary)
    assert size == encoder.card.vocabulary_size < 97
    assert not any(term != term.lower() for term in encoder.vocabulary)
    ids, mask = _batch(2, 10)
    rows = {term: i for i, term in enumerate(_twin_terms())}
    states, pooled = encoder.pooled_states(ids, mask)
    head = encoder.model.get_output_embeddings()
    with torch.inference_mode():
        all_rows = find_argmax(states, head.weight, head.bias, pooled, activation="log1p_relu").weights
        vectors = encoder(ids, mask)
    at = encoder.vocabulary.index
    torch.testing.assert_close(vectors[:, at("usa")], all_rows[:, [rows["USA"], rows["Usa"]]].amax(dim=1))
    torch.testing.assert_close(vectors[:, at("w1")], all_rows[:, rows["w1"]])
    torch.testing.assert_close(vectors[:, at("w4")], all_rows[:, rows["W4"]])


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "columns"), [(0, None), (0, [3, 5, 8, 20, 21, 30, 40, 41]), (3000, None), (3000, range(1500))]
)
def test_graph_folds_like_torch(tmp_path: Path, more: int, columns: Sequence[int] | None) -> None:
    """The exporter folds constants of up to 1,024 rows, and keeps larger ones in the graph."""
    encoder = _twins(tmp_path, more)
    model = export_graph(encoder, top_k=8, columns=None if columns is None else np.array(columns))
    ids, mask = _batch(4, 14)
    feed = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    with torch.inference_mode():
        expected = encoder(ids, mask).numpy()
    if columns is not None:
        expected[:, np.setdiff1d(np.arange(expected.shape[1]), columns)] = 0
    for graph, most in ((model, 1e-4), (quantize_graph(model, tmp_path), 0.2)):
        terms, weights = _run(graph, feed)
        np.testing.assert_allclose(np.take_along_axis(expected, terms, 1), weights, atol=most)
        np.testing.assert_allclose(-np.sort(-expected, axis=1)[:, :8], weights, atol=most)
    heads = [node for node in model.graph.node if node.op_type == "Split" and "head" in node.output[0]]
    assert len(heads) == 1


def _run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["terms", "weights"], feed)


def _twin_terms() -> list[str]:
    """The tiny vocabulary with w2 (a twin of W2) in place of W90, and two cased forms of one word."""
    terms = list(VOCABULARY)
    terms[terms.index("W90")], terms[terms.index("W88")], terms[terms.index("W86")] = "w2", "USA", "Usa"
    return terms


def _twins(tmp_path: Path, more: int = 0) -> SparseEncoder:
    """Return an encoder of one layer: what these tests compare comes after the layers, and an export takes longer."""
    folder = tiny_checkpoint(tmp_path / "checkpoint", "bert", layers=1)
    if more:
        _add_words(folder, [f"{'x' if i % 2 else 'X'}{i // 2 if i % 4 < 2 else i}" for i in range(more)])
    path = folder / "tokenizer.json"
    text = path.read_text()
    for old, new in (("W90", "w2"), ("W88", "USA"), ("W86", "Usa")):
        text = text.replace(f'"{old}"', f'"{new}"')
    path.write_text(text)
    return SparseEncoder.load(folder, output_casing="uncased")


def _add_words(folder: Path, words: list[str]) -> None:
    words = list(dict.fromkeys(words))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {word: len(vocabulary) + i for i, word in enumerate(words)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = BertForMaskedLM.from_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model.resize_token_embeddings(len(vocabulary), mean_resizing=False)
    model.save_pretrained(folder)
