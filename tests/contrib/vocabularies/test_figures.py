import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.command import main
from lsr_prod.model import SparseEncoder
from lsr_prod.training.vocabulary.initialization import Initialization, copy_overlap, semantic
from lsr_prod.training.vocabulary.target import train_tokenizer
from lsr_prod.training.vocabulary.transfer import replace_head
from lsr_prod_contrib.vocabularies.figures import inspect_vocabulary, read_texts
from quickstart.models import model_folder
from tests.model.tiny import tiny_checkpoint
from tests.training.vocabulary.test_transfer import other_tokenizer

TEXTS = ["collaborations of nationalists", "clears centimetres"]


def test_neighbors_of_word_that_model_lacks(tmp_path: Path):
    source = tiny_checkpoint(tmp_path / "source", "bert")
    terms = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w1", "w3", "new"]
    tiny_checkpoint(tmp_path / "target", "bert")
    target = SparseEncoder.load(tmp_path / "target")
    other_tokenizer(terms).save_pretrained(tmp_path / "target")  # its 8 tokens have the model's first rows
    found = inspect_vocabulary(
        str(source), target=str(tmp_path / "target"), target_embeddings=None, words=["new", "w1"], texts=["w1 w3"]
    )
    rows = target.model.get_input_embeddings().weight[:8]
    aligned = torch.tensor([7, 1, 2, 3, 4, 6, 8, -1]).numpy()
    expected = semantic(aligned, rows).entries(7)
    new, shared = found.neighbors
    assert [weight for _, weight in new.nearest] == pytest.approx([weight for _, weight in expected[:5]])
    assert new.nearest[0][0] == SparseEncoder.load(source).vocabulary[expected[0][0]]
    assert (new.support, new.shared, shared.shared, shared.pieces) == (len(expected), False, True, ["w1"])
    assert found.overlap == 7 / 8
    assert found.fragmentation == (1.0, 1.0)


@pytest.mark.long
def test_command_prints_figures_of_real_model(
    splade_tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    train_tokenizer(TEXTS * 9, model="bpe", size=400, min_count=2).save_pretrained(tmp_path / "target")
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    files = ["--texts", str(tmp_path / "texts.jsonl"), "--casing", str(tmp_path / "casing.json")]
    assert main(["inspect", "vocabulary", str(splade_tiny), "--target", str(tmp_path / "target"), *files]) == 0
    shown = capsys.readouterr().out
    for part in ("30,522", "0.682", "0.168", "tokens per word", "%"):
        assert part in shown
    assert json.loads((tmp_path / "casing.json").read_text())["counts"]["cased"] == {
        "uncased": 0,
        "cased": 0,
        "special": 0,
    }


@pytest.mark.long
def test_neighbors_in_embeddings_of_model_without_head(splade_tiny: Path):
    found = inspect_vocabulary(
        str(splade_tiny), target=str(model_folder("minilm")), target_embeddings=None, words=["clears"], texts=[]
    )
    assert found.overlap == 1.0
    assert found.neighbors[0].shared


def test_errors_are_one_line(splade_tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", "vocabulary", str(splade_tiny), "--words", "x"]) == 2
    assert "--words: they need a target vocabulary; also give --target" in capsys.readouterr().err
    assert main(["inspect", "vocabulary", str(splade_tiny), "--casing", "x.json"]) == 2
    assert "give --texts too" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"--texts: .* cannot be read"):
        read_texts(str(tmp_path / "nowhere.jsonl"), 3)
    minilm = str(model_folder("minilm"))
    with pytest.raises(ConfigError, match="--words: 'qqqq' is not a term of the target"):
        inspect_vocabulary(str(splade_tiny), target=minilm, target_embeddings=None, words=["qqqq"], texts=[])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"text": null}', "line 2 .*has no field text"),
        (b'{"title": "a"}', "line 2 .*has no field text"),
        (b'{"text": 5}', "line 2 .*field text is int, not a string"),
        (rb'{"text": "\ud800"}', "line 2 .*surrogates not allowed.*"),
        (b'{"text": "\xff"}', "line 2 .*invalid start byte.*"),
        (b"[" * 100_000, "line 2 .*"),
        (b"[]", "line 2 .*holds a list"),
    ],
)
def test_line_without_text_is_refused_with_its_number(tmp_path: Path, line: bytes, words: str):
    (tmp_path / "texts.jsonl").write_bytes(b'{"text": "a"}\n' + line + b"\n")
    with pytest.raises(ConfigError, match=f"--texts: {words}; give JSONL with a field text"):
        read_texts(str(tmp_path / "texts.jsonl"), 3)
    assert read_texts(str(tmp_path / "texts.jsonl"), 1) == ["a"]


def test_byte_order_mark_before_texts_is_skipped(tmp_path: Path):
    (tmp_path / "texts.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n{"text": ""}\n')
    assert read_texts(str(tmp_path / "texts.jsonl"), 3) == ["a", ""]


def test_uncased_output_is_ignored_as_in_transfer(tmp_path: Path):
    source = tiny_checkpoint(tmp_path / "source", "bert")
    SparseEncoder.load(source, output_casing="uncased").save(tmp_path / "uncased")
    tiny_checkpoint(tmp_path / "target", "bert")
    asked = {"target": str(tmp_path / "target"), "target_embeddings": None, "words": ["W4"], "texts": []}
    plain, uncased = (inspect_vocabulary(str(model), **asked) for model in (source, tmp_path / "uncased"))
    assert (uncased.overlap, uncased.neighbors) == (plain.overlap, plain.neighbors)


def test_target_is_refused_for_model_of_words(splade_tiny: Path, tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "source", "bert"))
    rows = Initialization(copy_overlap(np.arange(3)), torch.arange(3))
    replace_head(encoder, ["w1", "w3", "w5"], rows, torch.zeros(3)).save(tmp_path / "words")
    with pytest.raises(ConfigError, match="--target: the model's output terms are not its tokens"):
        inspect_vocabulary(str(tmp_path / "words"), target=str(splade_tiny), target_embeddings=None, words=[], texts=[])
