"""A model folder whose files are damaged or do not fit together is one sentence of a ``ConfigError``."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from lsr_prod.errors import ConfigError, LsrError
from lsr_prod.jobs.command import main
from lsr_prod.model import SparseEncoder
from tests.model.tiny import tiny_checkpoint
from tests.quick import first_quick

CAUSES = ("", "{", "[]", "3", "null", '"text"', "{}", '{"a": 1}', "\x00\xff", "[" * 100_000)
CHECKPOINT = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
DIRECTORY = (
    "modules.json",
    "config_sentence_transformers.json",
    "1_SpladePooling/config.json",
    "encoder_card.json",
    "tokenizer.json",
    "model.safetensors",
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("damaged") / "checkpoint", "bert")


@pytest.fixture(scope="module")
def directory(checkpoint: Path) -> Path:
    SparseEncoder.load(checkpoint, document_max_length=16, query_max_length=8).save(checkpoint.parent / "model")
    return checkpoint.parent / "model"


def load(folder: Path) -> str | None:
    """Load a model; returns the sentence of its refusal, or None. Any other error is a failure."""
    sentence = None
    try:
        SparseEncoder.load(folder)
    except LsrError as error:
        sentence = str(error)
    assert "\n" not in (sentence or "")
    return sentence


@pytest.mark.parametrize("name", CHECKPOINT)
def test_checkpoint_with_a_broken_file_is_refused(name: str, checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    refused = 0
    for content in CAUSES:
        (folder / name).write_text(content, encoding="latin-1")
        refused += load(folder) is not None
    assert refused >= len(CAUSES) - 2  # some settings of a tokenizer may be absent


@pytest.mark.parametrize("name", DIRECTORY)
def test_model_directory_with_a_broken_file_is_refused(name: str, directory: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(directory, tmp_path / "copy"))
    assert (folder / name).is_file(), sorted(path.name for path in folder.rglob("*"))
    refused = 0
    for content in CAUSES:
        (folder / name).write_text(content, encoding="latin-1")
        refused += load(folder) is not None
    assert refused >= len(CAUSES) - 3


@pytest.fixture(scope="module")
def router(checkpoint: Path) -> Path:
    """A folder of sentence-transformers alone, whose queries have one weight per token."""
    folder = checkpoint.parent / "router"
    SparseEncoder.load(checkpoint, query_encoder="learned").save(folder)
    (folder / "encoder_card.json").unlink()
    return folder


ROUTER = (
    "modules.json",
    "router_config.json",
    "config_sentence_transformers.json",
    "document_0_Transformer/sentence_bert_config.json",
    "document_1_SpladePooling/config.json",
    "query_0_SparseStaticEmbedding/config.json",
    "query_0_SparseStaticEmbedding/model.safetensors",
    "query_0_SparseStaticEmbedding/tokenizer.json",
)


@pytest.mark.parametrize("name", first_quick(ROUTER))
def test_router_with_a_broken_file_is_refused(name: str, router: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(router, tmp_path / "copy"))
    assert load(folder) is None
    refused = 0
    for content in CAUSES:
        (folder / name).write_text(content, encoding="latin-1")
        refused += load(folder) is not None
    assert refused >= len(CAUSES) - 3
    values = ("3", "[3]", '{"0": 1}', '["document_0_Transformer"]', "null", '"x"')
    for field in ("types", "structure", "parameters", "pooling_strategy", "prompts", "model_args", "frozen"):
        for value in values:
            (folder / name).write_text(f'{{"{field}": {value}}}')
            load(folder)
    (folder / name).unlink()
    load(folder)


def test_weights_of_another_size_than_the_configuration_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    config = json.loads((folder / "config.json").read_text())
    for change in ({"hidden_size": 64}, {"intermediate_size": 7}, {"vocab_size": 5}, {"hidden_size": "x"}):
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ConfigError, match="source: "):
            SparseEncoder.load(folder)
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    name = next(name for name, tensor in weights.items() if tensor.ndim == 2)
    weights[name] = weights[name][:, :-1].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match=r"the weights of .* cannot be read"):
        SparseEncoder.load(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("modules.json", lambda modules: modules[:1]),
        ("modules.json", lambda modules: [{"type": 3}, *modules[1:]]),
        ("modules.json", lambda modules: {str(place): module for place, module in enumerate(modules)}),
        ("config_sentence_transformers.json", lambda settings: {**settings, "prompts": ["a"]}),
        ("config_sentence_transformers.json", lambda settings: {**settings, "prompts": {"query": 3}}),
    ],
)
def test_settings_of_the_wrong_type_are_refused(
    name: str, change: Callable[[object], object], directory: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(directory, tmp_path / "copy"))
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(change(content)))
    with pytest.raises(ConfigError, match="source: "):
        SparseEncoder.load(folder)


def test_truncated_files_and_flipped_bits_never_raise_a_foreign_error(directory: Path, tmp_path: Path) -> None:
    rng, folder = random.Random(1), Path(shutil.copytree(directory, tmp_path / "copy"))
    for name in DIRECTORY:
        whole = (folder / name).read_bytes()
        for _ in range(6):
            place = rng.randrange(len(whole))
            flipped = bytes([whole[place] ^ (1 << rng.randrange(8))])
            damaged = rng.choice([whole[:place], whole[:place] + flipped + whole[place + 1 :]])
            (folder / name).write_bytes(damaged)
            load(folder)
        (folder / name).write_bytes(whole)
    assert load(folder) is None


def test_command_prints_one_line_for_a_broken_folder(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    (folder / "tokenizer.json").write_text('{"version": "\x1b[2J')
    assert main(["model", str(folder), str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert len(printed.splitlines()) == 1
    assert "\x1b" not in printed
    assert not (tmp_path / "out").exists()
