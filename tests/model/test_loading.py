import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertModel, GPT2Config, GPT2LMHeadModel, T5Config

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder, loading
from tests.model.tiny import VOCABULARY, tiny_checkpoint, tiny_tokenizer


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tiny_checkpoint(tmp_path / "checkpoint", "bert")


def test_default_lengths_are_capped_at_positions_of_model(checkpoint: Path, tmp_path: Path) -> None:
    card = SparseEncoder.load(checkpoint).card
    assert (card.architecture, card.query_max_length, card.document_max_length) == ("BertForMaskedLM", 64, 72)
    assert len(card.parents) == 1
    # RoBERTa's positions start after the padding index, 7 here.
    assert SparseEncoder.load(tiny_checkpoint(tmp_path / "roberta", "roberta")).card.document_max_length == 64


def test_default_lengths_below_those_of_the_model_are_logged(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SparseEncoder.load(checkpoint, query_max_length=72)
    assert not caplog.records
    SparseEncoder.load(checkpoint)
    (record,) = caplog.records
    assert record.fields == {"query_max_length": 64, "longest": 72}


def test_longest_text_can_be_encoded(tmp_path: Path) -> None:
    assert len(SparseEncoder.load(tiny_checkpoint(tmp_path / "r", "roberta")).encode(["w1 " * 200]).terms)


def test_output_vocabulary_is_that_of_tokenizer(checkpoint: Path) -> None:
    assert SparseEncoder.load(checkpoint).vocabulary == VOCABULARY


@pytest.mark.parametrize("source", ["/nowhere/model", "./nowhere", "some/where/else", "nobody/no-such-model", "a b c"])
def test_missing_source_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match="source: "):
        SparseEncoder.load(source)


def test_model_without_trained_head_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    BertModel.from_pretrained(checkpoint).save_pretrained(tmp_path / "body")
    tiny_tokenizer().save_pretrained(tmp_path / "body")
    with pytest.raises(ConfigError, match="its head is not trained"):
        SparseEncoder.load(tmp_path / "body")


def test_unsupported_architectures_are_refused(tmp_path: Path) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path / "causal")
    T5Config(vocab_size=11).save_pretrained(tmp_path / "t5")
    for folder in ("causal", "t5"):
        with pytest.raises(ConfigError, match="not a language model with a supported head"):
            SparseEncoder.load(tmp_path / folder)


@pytest.mark.long
def test_pickle_weights_are_refused_with_the_command_that_converts_them(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "it's a model", "llama")
    expected = SparseEncoder.load(checkpoint).encode(["w1 W2"])
    weights = checkpoint / "model.safetensors"
    torch.save(load_file(weights), checkpoint / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ConfigError, match="never loaded") as refusal:
        SparseEncoder.load(checkpoint)
    command = shlex.split(str(refusal.value).partition("safetensors with: ")[2])
    subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True)
    np.testing.assert_array_equal(SparseEncoder.load(checkpoint).encode(["w1 W2"]).weights, expected.weights)


def test_model_without_weights_is_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"no model\.safetensors"):
        SparseEncoder.load(checkpoint)


def test_code_in_model_folder_is_not_run(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "code.C", "AutoModelForMaskedLM": "code.M"}}
    (checkpoint / "config.json").write_text(json.dumps(config))
    (checkpoint / "code.py").write_text("raise SystemExit('run')")
    with pytest.raises(ConfigError):
        SparseEncoder.load(checkpoint)


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ({"max_length": 3}, "max_length"),
        ({"vocabulary_size": 3}, "vocabulary_size"),
        ({"query_max_length": 2}, "query_max_length"),
        ({"document_max_length": 73}, "document_max_length"),
        ({"casing": "upper"}, "casing"),
        ({"activation": "relu"}, "activation"),
        ({"pooled_tokens": "cls"}, "pooled_tokens"),
    ],
)
def test_unsupported_overrides_are_refused(checkpoint: Path, override: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: "):
        SparseEncoder.load(checkpoint, **override)


def test_casing_changes_tokenizer_and_cannot_be_reverted(checkpoint: Path, tmp_path: Path) -> None:
    encoder = SparseEncoder.load(checkpoint, casing="lowercase")
    assert encoder.tokenizer.tokenize("W1 w1") == ["w1", "w1"]
    encoder.save(tmp_path / "model")
    again = SparseEncoder.load(tmp_path / "model")
    assert again.card.casing == "lowercase"
    assert again.tokenizer.tokenize("W1 w1") == ["w1", "w1"]
    with pytest.raises(ConfigError, match="lowercases already"):
        SparseEncoder.load(tmp_path / "model", casing="none")


def test_bert_tokenizer_keeps_change_of_casing(splade_tiny: Path, tmp_path: Path) -> None:
    """transformers rebuilds the normalizer of its tokenizer classes from their arguments."""
    shutil.copytree(splade_tiny, tmp_path / "cased")
    config = json.loads((splade_tiny / "tokenizer_config.json").read_text()) | {"do_lower_case": False}
    (tmp_path / "cased" / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = json.loads((splade_tiny / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (tmp_path / "cased" / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert SparseEncoder.load(tmp_path / "cased").card.casing == "none"
    SparseEncoder.load(tmp_path / "cased", casing="lowercase").save(tmp_path / "model")
    assert SparseEncoder.load(tmp_path / "model").tokenizer.tokenize("Paris") == ["paris"]


@pytest.mark.parametrize(
    ("file", "values", "match"),
    [
        ("config.json", {"model_type": "own", "auto_map": {"AutoConfig": "code.C"}}, "needs code of its folder"),
        ("config.json", {"model_type": "own"}, "or a newer transformers"),
        (
            "config.json",
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            "this setting",
        ),
        ("tokenizer_config.json", {"add_special_tokens": False}, "without this setting"),
        ("adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "x"}, "has an adapter .* merge it"),
    ],
)
def test_remedy_of_a_folder_that_is_not_damaged_names_what_it_needs(
    checkpoint: Path, file: str, values: dict[str, object], match: str
) -> None:
    path = checkpoint / file
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **values}))
    with pytest.raises(ConfigError, match=match) as refusal:
        SparseEncoder.load(checkpoint)
    assert "copy the folder" not in str(refusal.value)


def test_cached_id_with_pickle_weights_is_refused_with_the_command_that_converts_it(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoint / "model.safetensors").unlink()
    cached = tmp_path / "models--some--model" / "snapshots" / "1"
    shutil.copytree(checkpoint, cached)
    monkeypatch.setattr(loading, "snapshot_download", lambda *_, **__: str(cached))
    with pytest.raises(ConfigError, match=r"some/model has no model\.safetensors.* python -c ") as refusal:
        SparseEncoder.load("some/model")
    code = shlex.split(refusal.value.remedy)[-1]
    assert code.endswith("; M.from_pretrained('some/model').save_pretrained('model')")


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("truncation_side", "left", "cuts texts at their start; set truncation_side: right"),
        ("split_special_tokens", True, "splits special tokens of a text; set split_special_tokens: false"),
    ],
)
def test_setting_of_a_tokenizer_that_changes_tokens_at_a_call_is_refused(
    checkpoint: Path, name: str, value: object, match: str
) -> None:
    path = checkpoint / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(ConfigError, match=match):
        SparseEncoder.load(checkpoint)


def test_tokenizer_that_does_not_match_card_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    SparseEncoder.load(checkpoint).save(tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    path.write_text(path.read_text().replace('"w91"', '"w92"'))
    with pytest.raises(ConfigError, match="output vocabulary"):
        SparseEncoder.load(tmp_path / "model")


def test_truncated_weights_are_reported(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"source: the weights of .* cannot be read"):
        SparseEncoder.load(checkpoint)
