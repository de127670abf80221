"""Encoders that read tokens appended to a text, one head per token (UEmbed), against a plain definition."""

import json
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import processors
from torch import Tensor
from transformers import LlamaConfig

from lsr_prod.config import ExportSettings
from lsr_prod.config.language import LoraSettings
from lsr_prod.encoding.passages import PassageSplitter
from lsr_prod.errors import ConfigError
from lsr_prod.inference import BundleEncoder
from lsr_prod.jobs.command import main
from lsr_prod.model import SparseEncoder
from lsr_prod.model.appended_heads import APPENDED_HEADS_FILE, AppendedHeads
from lsr_prod.model.backbone import head_input, hidden_states, output_layer
from lsr_prod.model.export import export_bundle
from lsr_prod.model.export.graph import quantize_graph
from lsr_prod.model.pooled_head import find_argmax, pool_vocabulary
from lsr_prod.model.pooling import appended_states, pad_rows
from lsr_prod.model.tokenizer_files import append_tokens
from lsr_prod.training.encoder_setup import add_lora
from lsr_prod.training.stages.vocabulary import expand
from lsr_prod_contrib.diagnostics.model_report import diagnose_model
from lsr_prod_contrib.vocabularies.casing_matrix import casing_matrix
from tests.model.tiny import causal_tokenizer, tiny_checkpoint

COUNT = 3
EOS = 3
# Odd Unicode, texts of white space, one of a single invisible character, one without a known word, one that is cut.
TEXTS = [
    "w1 W2 w3",
    "",
    " \n\t",
    "\u200b",
    "w5",
    "w\u0301 \U0001f600 \ud83d w7".encode("utf-8", "replace").decode(),
    "\u202ew9 \ufeff w11\x00 w13",
    " ".join(f"w{i}" for i in range(1, 92, 2)),
]
FORMS = [
    ("llama", {}),
    ("qwen3", {"attention": "bidirectional"}),
    ("gpt_neox", {"attention": "echo"}),
    ("bert", {}),
    ("roberta", {"activation": "l0"}),
    ("qwen2", {"output_casing": "uncased"}),
]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    return {name: tiny_checkpoint(root / name, name) for name, _ in FORMS}


def load(folder: Path, **changes: Any) -> SparseEncoder:
    lengths = {"query_max_length": 12, "document_max_length": 20}
    return SparseEncoder.load(folder, **{"pooled_tokens": "appended", "appended_tokens": COUNT} | lengths | changes)


def plain_vector(encoder: SparseEncoder, text: str) -> Tensor:
    """The definition, one text and one term at a time: [terms of the head]."""
    if not text.strip():
        return torch.zeros(len(encoder.heads.heads))
    words = encoder.tokenizer(text, add_special_tokens=False)["input_ids"]
    empty = encoder.tokenizer("")["input_ids"]
    room = encoder.card.document_max_length - len(empty)
    before = [number for number in empty if number != EOS]
    ids = torch.tensor([[*before, *words[:room], *empty[len(before) :]]])
    assert ids[0, -COUNT:].tolist() == [EOS] * COUNT
    hidden = hidden_states(encoder.model, ids, torch.ones_like(ids), attention=encoder.card.attention)
    states = head_input(encoder.model, hidden)[0]  # [L, d]
    layer = encoder.model.get_output_embeddings()
    vector = torch.zeros(len(layer.weight))
    for term, row in enumerate(layer.weight):
        state = states[len(states) - COUNT + int(encoder.heads.heads[term])]
        logit = row @ state + (0 if layer.bias is None else layer.bias[term])
        vector[term] = torch.log1p(torch.relu(logit))
    return torch.log1p(vector) if encoder.card.activation == "l0" else vector


def dense(batch: Any, size: int) -> Tensor:
    rows = torch.zeros(len(batch), size)
    for i in range(len(batch)):
        terms, weights = batch.row(i)
        rows[i, terms.tolist()] = torch.from_numpy(weights.copy())
    return rows


@pytest.mark.parametrize(("name", "changes"), FORMS)
@torch.inference_mode()
def test_vectors_equal_the_definition(checkpoints: dict[str, Path], name: str, changes: dict[str, Any]) -> None:
    encoder = load(checkpoints[name], **changes)
    expected = encoder.fold(torch.stack([plain_vector(encoder, text) for text in TEXTS]))
    assert expected[0].any()
    assert not expected[1:3].any()
    found = dense(encoder.encode(TEXTS, batch_size=3), encoder.card.vocabulary_size)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "changes", "probe"), [("llama", {}, False), ("bert", {"output_casing": "uncased"}, True)]
)
@torch.inference_mode()
def test_bundle_equals_the_definition(
    checkpoints: dict[str, Path], name: str, changes: dict[str, Any], probe: bool, tmp_path: Path
) -> None:
    encoder = load(checkpoints[name], **changes)
    encoder.save(tmp_path / "model")
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    cut = {"probe_texts": str(texts)} if probe else {}
    export = ExportSettings(
        model=str(tmp_path / "model"), output=str(tmp_path / "bundle"), parity_texts=str(texts), top_k=1000, **cut
    )
    assert export_bundle(export)["parity_weight_difference"] < 1e-4
    bundle = BundleEncoder(tmp_path / "bundle")
    assert bundle.card == encoder.card
    expected = encoder.fold(torch.stack([plain_vector(encoder, text) for text in TEXTS]))
    if probe:
        assert int(expected.any(dim=0).sum()) <= bundle.top_k < encoder.card.vocabulary_size, "queries activate more"
    found = dense(bundle.encode(TEXTS, kind="document"), encoder.card.vocabulary_size)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    rows = bundle.token_ids(TEXTS, kind="query")
    assert all(len(row) <= 12 and row[-COUNT:] == [EOS] * COUNT for row in rows if row)
    assert len(rows[-1]) == 12, "a text that is cut keeps its appended tokens"
    graph = quantize_graph(onnx.load(tmp_path / "bundle" / "model.onnx"), tmp_path)
    products = Counter(node.op_type for node in graph.graph.node)
    assert products["MatMulInteger"] >= COUNT + 2 * 6, "the heads and the layers have 8 bits"


def test_empty_head_computes_nothing() -> None:
    heads = AppendedHeads(torch.tensor([2, 0, 2, 0]), 4)
    states, matrix, bias = torch.randn(5, 4, 3), torch.randn(4, 3), torch.randn(4)
    expected = torch.stack([states[:, i] @ matrix[term] + bias[term] for term, i in enumerate([2, 0, 2, 0])], dim=1)
    torch.testing.assert_close(heads(states, matrix, bias), expected)
    some = heads.restricted(torch.tensor([1, 2]))
    torch.testing.assert_close(some(states, matrix[1:3], None), expected[:, 1:3] - bias[1:3])


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 40), count=st.integers(1, 9), seed=st.integers(0, 99))
def test_split_is_a_partition_of_near_rows(rows: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, 6, generator=generator)
    heads = AppendedHeads.of_matrix(matrix, count)
    assert heads.count == count
    assert 0 <= int(heads.heads.min()) <= int(heads.heads.max()) < count
    assert torch.equal(heads.heads, AppendedHeads.of_matrix(matrix, count).heads)
    groups = torch.arange(3).repeat_interleave(rows)
    directions = torch.eye(6)[groups] + 0.01 * torch.randn(3 * rows, 6, generator=generator)
    lengths = 0.1 + torch.rand(3 * rows, 1, generator=generator)
    assert torch.equal(AppendedHeads.of_matrix(lengths * directions, 3).heads, groups), "lengths do not matter"


@pytest.mark.parametrize("side", ["right", "left"])
def test_states_are_those_of_the_last_tokens(side: str) -> None:
    hidden = torch.arange(4 * 6 * 2.0).view(4, 6, 2)
    mask = torch.zeros(4, 6, dtype=torch.int64)
    for row, length in enumerate((6, 4, 2, 0)):
        mask[row, 6 - length :] = 1
    if side == "right":
        mask = mask.flip(1)
    states, found = appended_states(hidden, mask, 3)
    assert found.tolist() == [[True] * 3, [True] * 3, [False, True, True], [False] * 3]
    for row in range(3):
        expected = hidden[row][mask[row] > 0][-3:]
        assert torch.equal(states[row][found[row]], expected)


@pytest.mark.parametrize("activation", ["log1p_relu", "l0"])
def test_gradients_equal_those_of_the_definition(activation: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    states, matrix, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((5, COUNT, 4), (17, 4), (17,))
    )
    heads = AppendedHeads.of_matrix(matrix, COUNT)
    pooled = torch.tensor([[True] * COUNT] * 4 + [[False] * COUNT])

    def vectors(states: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
        return pool_vocabulary(states, matrix, bias, pooled, activation=activation, heads=heads)

    assert torch.autograd.gradcheck(vectors, (states, matrix, bias))
    found = find_argmax(states, matrix, bias, pooled, activation=activation, heads=heads)
    again = pool_vocabulary(states, matrix, bias, pooled, activation=activation, heads=heads, found=found)
    assert torch.equal(again, vectors(states, matrix, bias))
    assert not again[4].any()


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_gradients_reach_every_parameter_and_low_rank_updates(checkpoints: dict[str, Path], name: str) -> None:
    encoder = load(checkpoints[name])
    ids, mask = pad_rows(encoder._token_ids(TEXTS, "document"), 0)
    encoder(ids, mask).sum().backward()
    unused = {"bert.embeddings.token_type_embeddings.weight"}
    assert not [n for n, p in encoder.model.named_parameters() if p.grad is None and n not in unused]
    updated = encoder.clone()
    add_lora(updated.model, LoraSettings(rank=2))
    updated(ids, mask).sum().backward()
    trained = {n: p for n, p in updated.model.named_parameters() if p.requires_grad}
    assert trained
    assert all(p.grad is not None for p in trained.values())
    _, bias = output_layer(updated.model)
    assert bias.grad.any(), "the bias of the head is trained too"


def test_saved_encoder_has_the_same_heads(
    checkpoints: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = load(checkpoints["bert"])
    with caplog.at_level(logging.WARNING, logger="lsr_prod"):
        digest = encoder.save(tmp_path / "model")
    assert "sentence-transformers cannot open this model" in caplog.text
    assert not (tmp_path / "model" / "modules.json").exists()
    with torch.no_grad():  # training moves the rows, the split stays
        output_layer(encoder.model)[0].copy_(torch.randn(97, 32))
    moved = encoder.clone()
    moved.save(tmp_path / "moved")
    for folder in ("model", "moved"):
        again = SparseEncoder.load(tmp_path / folder)
        assert again.card == encoder.card
        assert torch.equal(again.heads.heads, encoder.heads.heads)
        assert again._token_ids(["w1"], "query") == [[2, 6, EOS, *[EOS] * COUNT]]
    assert SparseEncoder.load(tmp_path / "model").save(tmp_path / "again") == digest
    assert not torch.equal(AppendedHeads.of_matrix(output_layer(moved.model)[0], COUNT).heads, encoder.heads.heads)
    same = SparseEncoder.load(tmp_path / "model").with_card(query_prompt="w9 ", appended_tokens=COUNT)
    assert torch.equal(same.heads.heads, encoder.heads.heads)
    assert same._token_ids(["w1"], "query") == [[2, 14, 6, EOS, *[EOS] * COUNT]]


@pytest.mark.parametrize("damage", ["absent", "cut", "other rows", "other heads"])
def test_damaged_heads_are_refused_in_one_sentence(checkpoints: dict[str, Path], damage: str, tmp_path: Path) -> None:
    load(checkpoints["llama"]).save(tmp_path / "model")
    path = tmp_path / "model" / APPENDED_HEADS_FILE
    match damage:
        case "absent":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:20])
        case "other rows":
            save_file({"heads": torch.zeros(96, dtype=torch.int16)}, path)
        case "other heads":
            save_file({"heads": torch.full((97,), COUNT, dtype=torch.int16)}, path)
    with pytest.raises(ConfigError, match=APPENDED_HEADS_FILE) as caught:
        SparseEncoder.load(tmp_path / "model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"pooled_tokens": "not_bos"}, "appended_tokens: pooled_tokens is not_bos, with 3 appended tokens; set "),
        ({"appended_tokens": 0}, "appended_tokens: pooled_tokens is appended, with 0 appended tokens"),
        ({"appended_tokens": -1}, "appended_tokens: pooled_tokens is appended, with -1 appended tokens"),
        ({"pooled_tokens": "not_bos", "appended_tokens": -1}, "appended_tokens: pooled_tokens is not_bos, with -1"),
        ({"pooled_states": "mean"}, "pooled_states: every appended token has a head of its own"),
        ({"appended_tokens": 11}, "query_max_length: 12 is outside the lengths of this model; give 13 to 72 tokens"),
    ],
)
def test_settings_that_contradict_are_refused(
    checkpoints: dict[str, Path], changes: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(error)}") as caught:
        load(checkpoints["llama"], **changes)
    assert "\n" not in str(caught.value)


def test_tokens_are_appended_once(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    load(checkpoints["llama"]).save(tmp_path / "model")
    for changes in ({"appended_tokens": 4}, {"pooled_tokens": "not_bos", "appended_tokens": 0}):
        with pytest.raises(ConfigError, match="appended_tokens: the tokenizer appends 3 tokens already"):
            SparseEncoder.load(tmp_path / "model", **changes)
    plain = SparseEncoder.load(checkpoints["llama"])
    plain.with_card(pooled_tokens="appended", appended_tokens=5)
    assert plain.heads is None
    assert plain._token_ids(["w1"], "query") == [[2, 6]], "the encoder that was changed stays as it is"


@pytest.mark.parametrize("kind", ["none", "byte level", "bert", "roberta", "template", "both"])
def test_appended_tokens_keep_other_post_processing(kind: str) -> None:
    tokenizer = causal_tokenizer(bos=False)
    ends = processors.TemplateProcessing(single="<s> $A </s>", pair=None, special_tokens=[("<s>", 2), ("</s>", 3)])
    byte_level = processors.ByteLevel(trim_offsets=True)
    tokenizer.backend_tokenizer.post_processor = {
        "none": None,
        "byte level": byte_level,
        "bert": processors.BertProcessing(("</s>", 3), ("<s>", 2)),
        "roberta": processors.RobertaProcessing(("</s>", 3), ("<s>", 2)),
        "template": ends,
        "both": processors.Sequence([byte_level, ends]),
    }[kind]
    append_tokens(tokenizer, LlamaConfig(vocab_size=97), COUNT)
    backend = tokenizer.backend_tokenizer
    first, last = ([], []) if kind in ("none", "byte level") else ([2], [EOS])
    last += [EOS] * COUNT
    assert backend.encode("w1 W2").ids == [*first, 6, 0, *last]
    assert backend.encode("").ids == [*first, *last]
    assert backend.num_special_tokens_to_add(False) == len(first) + len(last)
    assert all(backend.encode("w1").special_tokens_mask[-COUNT:])
    backend.enable_truncation(len(first) + len(last) + 1)
    assert backend.encode("w1 w3 w5 w7").ids == [*first, 6, *last]


def test_tokenizer_without_an_end_token_is_refused() -> None:
    tokenizer = causal_tokenizer(bos=True)
    tokenizer.eos_token = None
    with pytest.raises(ConfigError, match="its tokenizer has neither an EOS nor a SEP token; set its eos_token"):
        append_tokens(tokenizer, LlamaConfig(vocab_size=97, eos_token_id=None), COUNT)


def test_passages_end_with_the_appended_tokens(checkpoints: dict[str, Path]) -> None:
    backend = load(checkpoints["llama"]).tokenizer.backend_tokenizer
    passages, _ = PassageSplitter(backend, prompt="w9 ", max_length=8, stride=2, max_passages=9).split(["w1 w3 w5 w7"])
    assert passages == [[[2, 14, 6, 8, 10, *[EOS] * COUNT], [2, 14, 10, 12, *[EOS] * COUNT]]]


def test_cards_without_appended_tokens_are_unchanged(checkpoints: dict[str, Path]) -> None:
    card = SparseEncoder.load(checkpoints["llama"]).card
    assert "appended_tokens" not in card.to_json()
    assert load(checkpoints["llama"]).card.to_json()["appended_tokens"] == COUNT


@torch.inference_mode()
def test_fp16_and_figures_of_tokens_are_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    encoder = load(checkpoints["bert"])
    encoder.save(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"export\.precision: heads of appended tokens have no form in fp16"):
        export_bundle(ExportSettings(model=str(tmp_path / "model"), output=str(tmp_path / "bundle"), precision="fp16"))
    with pytest.raises(ConfigError, match="model: it pools appended tokens only"):
        casing_matrix(encoder, TEXTS)
    missing = diagnose_model(encoder, ["w1 w3", "w5"])["missing"]
    assert set(missing.values()) == {"it pools appended tokens only"}


def test_new_output_terms_get_a_new_split(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    encoder = load(checkpoints["bert"])
    expanded, _ = expand(encoder, ["w1", "w1w3", "w5"], drawn=True)
    assert len(expanded.heads.heads) == 3
    expanded.save(tmp_path / "model")
    again = SparseEncoder.load(tmp_path / "model")
    for one, other in zip(again.encode(["w1 w3"]).row(0), expanded.encode(["w1 w3"]).row(0), strict=True):
        assert one.tolist() == pytest.approx(other.tolist())


def test_command_makes_the_model(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    lengths = ["--query-max-length", "12", "--document-max-length", "20"]
    command = ["model", str(checkpoints["llama"]), str(tmp_path / "model"), *lengths]
    assert main([*command, "--pooled-tokens", "appended", "--appended-tokens", str(COUNT)]) == 0
    made, expected = SparseEncoder.load(tmp_path / "model"), load(checkpoints["llama"])
    assert made.card == expected.card
    assert torch.equal(made.heads.heads, expected.heads.heads)
    assert main([*command[:2], str(tmp_path / "other"), *lengths, "--pooled-tokens", "appended"]) == 2
