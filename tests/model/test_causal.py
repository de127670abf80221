"""Decoders as encoders: attention, pooled positions and start token (papers/csplade, 4)."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import processors
from torch import Tensor
from transformers import LlamaConfig

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import echo_inputs, hidden_states
from lsr_prod.model.tokenizer_files import has_start_token, prepend_start_token
from tests.model.tiny import CAUSAL, causal_tokenizer, tiny_checkpoint

ATTENTIONS = ("causal", "bidirectional", "echo")
BOS, LAST = 2, -1


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("decoders")
    return {name: tiny_checkpoint(root / name, name) for name in CAUSAL}


@pytest.fixture(params=CAUSAL)
def checkpoint(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    return folders[request.param]


def _load(folder: Path, attention: str, **changes: object) -> SparseEncoder:
    return SparseEncoder.load(folder, attention=attention, query_max_length=20, document_max_length=36, **changes)


def _batch(lengths: list[int], side: str = "right") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(8, 97, (len(lengths), max(lengths)), generator=generator)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        text = slice(0, length) if side == "right" else slice(max(lengths) - length, None)
        mask[row, text] = 1
        ids[row, text.start] = BOS
    return ids, mask


def _plain_logits(encoder: SparseEncoder, ids: Tensor) -> Tensor:
    """Logits [L, V] of one text by the model's own forward, written out: no padding, one text, eager attention."""
    length, model = len(ids), encoder.model
    model.set_attn_implementation("eager")
    match encoder.card.attention:
        case "causal":
            logits = model(input_ids=ids[None]).logits[0]
        case "bidirectional":  # no mask: every token attends to every other token
            logits = model(input_ids=ids[None], attention_mask=torch.zeros(1, 1, length, length)).logits[0]
        case "echo":
            logits = model(input_ids=torch.cat((ids, ids))[None]).logits[0, length:]
    model.set_attn_implementation("sdpa")
    return logits


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("side", ["right", "left"])
@torch.inference_mode()
def test_padded_and_unpadded_batches_equal_definition_without_bos(checkpoint: Path, attention: str, side: str) -> None:
    encoder = _load(checkpoint, attention)
    ids, mask = _batch([17, 9, 2, 1], side)
    together = encoder(ids, mask)
    for row, kept in enumerate(mask):
        text = ids[row][kept > 0]
        logits = _plain_logits(encoder, text)
        alone = encoder(text[None], torch.ones_like(text)[None])
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=0)
        if len(text) == 1:
            assert not together[row].any(), "nothing but BOS, which is not pooled"
            continue
        expected = torch.log1p(torch.relu(logits[1:].amax(dim=0)))
        torch.testing.assert_close(together[row], expected, atol=1e-5, rtol=0)
        with_bos = torch.log1p(torch.relu(logits.amax(dim=0)))
        assert (with_bos - together[row]).abs().max() > 1e-3, "BOS would be seen if it were pooled"


@pytest.mark.parametrize("lengths", [[12], [12, 12], [12, 7]])
@torch.inference_mode()
def test_last_token_changes_first_position_unless_causal(checkpoint: Path, lengths: list[int]) -> None:
    """With echo it changes the second copy only; with causal attention nothing."""
    ids, mask = _batch(lengths)
    other = ids.clone()
    other[0, lengths[0] - 1] = (ids[0, lengths[0] - 1] - 8 + 1) % 89 + 8
    model = SparseEncoder.load(checkpoint).model

    def difference(attention: str) -> Tensor:
        """Return the largest difference of the states at each position of the first text, [L]."""
        states = [hidden_states(model, x, mask, attention=attention) for x in (ids, other)]
        return (states[0] - states[1])[0].abs().amax(dim=-1)

    assert difference("bidirectional")[:2].min() > 1e-4
    assert difference("echo")[:2].min() > 1e-4, "position 0 of the second copy, and the first that is pooled"
    assert difference("causal")[:LAST].max() == 0
    assert difference("causal")[LAST] > 1e-3
    copies = [
        model.base_model(*echo_inputs(x, mask), use_cache=False).last_hidden_state[0, : ids.shape[1]]
        for x in (ids, other)
    ]
    assert (copies[0] - copies[1]).abs()[:LAST].max() == 0, "the first copy sees no later token"


@torch.inference_mode()
def test_echo_positions_continue_in_second_copy_whatever_the_padding(checkpoint: Path) -> None:
    model = SparseEncoder.load(checkpoint).model
    ids, mask = _batch([5])
    padded, padding = torch.nn.functional.pad(ids, (0, 20), value=9), torch.nn.functional.pad(mask, (0, 20))
    alone = hidden_states(model, ids, mask, attention="echo")
    torch.testing.assert_close(hidden_states(model, padded, padding, attention="echo")[:, :5], alone, atol=1e-5, rtol=0)
    assert alone.shape == (1, 5, 32)


def test_text_starts_with_bos_when_tokenizer_adds_none(checkpoint: Path, tmp_path: Path) -> None:
    plain = json.loads((checkpoint / "tokenizer.json").read_text())["post_processor"]
    assert ("<s>" in json.dumps(plain)) == (checkpoint.name == "llama")
    encoder = _load(checkpoint, "causal")
    assert encoder.card.pooled_tokens == "not_bos"
    for _ in range(2):  # a saved encoder does not get a second start token
        assert encoder.tokenizer("w1 W2")["input_ids"] == [BOS, 6, 0] == _ids("w1 W2", encoder)
        assert encoder.tokenizer.num_special_tokens_to_add() == 1
        encoder.save(tmp_path / "model")
        encoder = SparseEncoder.load(tmp_path / "model")


def _ids(text: str, encoder: SparseEncoder) -> list[int]:
    return encoder._token_ids([text], "document")[0]


@pytest.mark.parametrize(
    ("tokens", "config", "expected"),
    [
        ({"bos_token": "<s>", "eos_token": "</s>"}, {}, 2),
        ({"eos_token": "</s>"}, {}, 2),  # the model's own, as its config says
        ({"eos_token": "</s>"}, {"bos_token_id": None}, 3),
        ({}, {"bos_token_id": None, "eos_token_id": [3, 4]}, 3),
        ({}, {"bos_token_id": None, "eos_token_id": None}, None),
    ],
)
def test_start_token_is_bos_of_tokenizer_then_model_then_eos(
    tmp_path: Path, tokens: dict[str, str], config: dict[str, object], expected: int | None
) -> None:
    folder = tiny_checkpoint(tmp_path / "checkpoint", "qwen2")
    backend = causal_tokenizer(bos=False).backend_tokenizer
    type(causal_tokenizer(bos=False))(tokenizer_object=backend, unk_token="<unk>", **tokens).save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(settings))
    if expected is None:
        with pytest.raises(ConfigError, match="neither a BOS nor an EOS token"):
            SparseEncoder.load(folder)
    else:
        assert _ids("w1", SparseEncoder.load(folder)) == [expected, 6]


@pytest.mark.parametrize("kind", ["none", "byte level", "template", "both"])
def test_start_token_keeps_other_post_processing(kind: str, tmp_path: Path) -> None:
    tokenizer = causal_tokenizer(bos=False)
    end = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 3)])
    byte_level = processors.ByteLevel(trim_offsets=True)
    steps = {"none": None, "byte level": byte_level, "template": end, "both": processors.Sequence([byte_level, end])}
    tokenizer.backend_tokenizer.post_processor = steps[kind]
    ends = [3] if kind in ("template", "both") else []
    config = LlamaConfig(vocab_size=97, bos_token_id=2)
    assert not has_start_token(tokenizer)
    for _ in range(2):
        prepend_start_token(tokenizer, config)
        backend = tokenizer.backend_tokenizer
        assert has_start_token(tokenizer)
        assert backend.encode("w1 W2").ids == [2, 6, 0, *ends]
        assert backend.encode("").ids == [2, *ends]
        assert backend.encode("w1", "W2").ids == [2, 6, *ends, 0, *ends]
        assert backend.num_special_tokens_to_add(False) == 1 + len(ends)
        backend.enable_truncation(3)
        assert backend.encode("w1 w1 w1 w1").ids == [2, 6, *(ends or [6])]
        backend.no_truncation()


@pytest.mark.parametrize("padding", [-1, 97, None])
def test_padding_token_without_embedding_is_ignored(tmp_path: Path, padding: int | None) -> None:
    folder = tiny_checkpoint(tmp_path / "checkpoint", "llama")
    settings = json.loads((folder / "config.json").read_text()) | {"pad_token_id": padding}
    (folder / "config.json").write_text(json.dumps(settings))
    encoder = _load(folder, "echo")
    texts = ["w1 w3 w5 w7", "w9", "", "W0 w1"]
    together = encoder.encode(texts)
    for i, text in enumerate(texts):
        torch.testing.assert_close(
            torch.from_numpy(encoder.encode([text]).weights), torch.from_numpy(together.row(i)[1]), atol=1e-5, rtol=0
        )
    assert encoder.model.config.pad_token_id is None


def test_prompts_follow_bos_in_both_copies(folders: dict[str, Path]) -> None:
    encoder = _load(folders["qwen3"], "echo", query_prompt="w9 W10 ")
    assert encoder._token_ids(["w1"], "query")[0] == [BOS, 14, 15, 6]
    ids = torch.tensor([encoder._token_ids(["w1"], "query")[0]])
    expected = torch.log1p(torch.relu(_plain_logits(encoder, ids[0])[1:].amax(dim=0)))
    found = encoder.encode(["w1"], "query")
    torch.testing.assert_close(torch.from_numpy(found.weights), expected[found.terms], atol=1e-5, rtol=0)


def test_echo_halves_the_maximum_length(folders: dict[str, Path]) -> None:
    with pytest.raises(
        ConfigError, match="document_max_length: 37 is outside the lengths of this model; give 2 to 36 tokens"
    ):
        SparseEncoder.load(folders["llama"], attention="echo", document_max_length=37, query_max_length=20)
    encoder = SparseEncoder.load(folders["llama"], document_max_length=72)
    assert encoder.card.attention == "causal"
    with pytest.raises(ConfigError, match="query_max_length: 64"):
        SparseEncoder.load(folders["llama"], attention="echo", document_max_length=36)


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.inference_mode()
def test_mean_state_passes_through_head(checkpoint: Path, attention: str) -> None:
    encoder = _load(checkpoint, attention, pooled_states="mean")
    ids, mask = _batch([11, 4, 1])
    found = encoder(ids, mask)
    plain = _load(checkpoint, attention)
    weight, _ = plain.model.get_output_embeddings().weight, None
    for row, kept in enumerate(mask[:2]):
        text = ids[row][kept > 0]
        states = hidden_states(plain.model, text[None], torch.ones_like(text)[None], attention=attention)[0]
        expected = torch.log1p(torch.relu(states[1:].mean(dim=0) @ weight.T))
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=0)
    assert not found[2].any()


def test_settings_that_do_not_fit_architecture_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^pooled_tokens: the first token of a LlamaForCausalLM does not represent the text"
    ):
        SparseEncoder.load(folders["llama"], pooled_tokens="all")
    masked = tiny_checkpoint(tmp_path / "bert", "bert")
    with pytest.raises(ConfigError, match=r"^attention: BertForMaskedLM is not a decoder"):
        SparseEncoder.load(masked, attention="echo")
    encoder = SparseEncoder.load(masked)
    with pytest.raises(ConfigError, match=r"^attention: BertForMaskedLM is not a decoder"):
        SparseEncoder(encoder.model, encoder.tokenizer, replace(encoder.card, attention="causal"))


def test_decoder_directory_has_no_sentence_transformers_files(
    folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="lsr_prod"):
        _load(folders["llama"], "echo").save(tmp_path / "model")
    assert "sentence-transformers cannot open this model" in caplog.text
    assert not (tmp_path / "model" / "modules.json").exists()
    card = json.loads((tmp_path / "model" / "encoder_card.json").read_text())
    assert (card["attention"], card["pooled_tokens"]) == ("echo", "not_bos")


def test_gradients_reach_every_parameter(checkpoint: Path) -> None:
    for attention in ATTENTIONS:
        encoder = _load(checkpoint, attention)
        encoder(*_batch([12, 7])).sum().backward()
        without = [name for name, parameter in encoder.model.named_parameters() if parameter.grad is None]
        assert not without, attention
