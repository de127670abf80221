"""Reading and writing of a tokenizer's files, and the errors of the libraries that read a model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError, LsrError
from lsr_prod.model.layout_reader import read_json
from lsr_prod.storage.drafts import write_file
from lsr_prod.storage.formats.bundle import TOKENIZER_FILE

_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
_LONGEST_CAUSE = 300  # characters of the message of another library
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@contextmanager
def readable(folder: Path, what: str) -> Iterator[None]:
    """Turn errors of the libraries that read a model into one sentence; a file that is absent stays an ``OSError``.

    transformers, tokenizers and safetensors raise errors of any type for a file that is damaged or does not fit.
    """
    try:
        yield
    except (OSError, LsrError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_CAUSE]}"
        problem = f"{what} of {folder} cannot be read ({why})"
        raise ConfigError("source", problem, "copy the folder of the model again") from error


def read_tokenizer(folder: Path, reader: Any = None) -> PreTrainedTokenizerFast:
    """Return the fast tokenizer of a folder."""
    try:
        with readable(folder, "the tokenizer"):
            tokenizer = (reader or tokenizer_reader(folder)).from_pretrained(folder, trust_remote_code=False)
    except OSError as error:
        raise ConfigError("source", f"{folder} has no tokenizer", "add its tokenizer.json") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError("source", f"the tokenizer of {folder} has no tokenizer.json", "convert it to a fast one")
    return tokenizer


def tokenizer_reader(folder: Path) -> Any:
    """Return the class that reads a folder's tokenizer: the generic one if ``tokenizer.json`` defines it completely.

    Model directories always use the generic class: transformers would otherwise build, for example, a Qwen2 model's
    tokenizer by the rules of Qwen2, whatever its files say.
    """
    settings = read_json(folder, "tokenizer_config.json")
    is_generic = settings.get("tokenizer_class") in _GENERIC and (folder / TOKENIZER_FILE).is_file()
    return PreTrainedTokenizerFast if is_generic else AutoTokenizer


def write_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerFast, max_length: int) -> None:
    """Write ``tokenizer.json`` and a ``tokenizer_config.json`` that transformers 4 and 5 read alike.

    Tokenizer classes of one architecture rebuild the normalizer from their own arguments and would drop a change of
    casing; the generic class named here uses ``tokenizer.json`` unchanged.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    backend.save(str(folder / "tokenizer.json"))
    special = {name: getattr(tokenizer, name, None) for name in _SPECIAL_TOKENS}
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_length,
            "model_input_names": list(tokenizer.model_input_names),
            "clean_up_tokenization_spaces": False,
            **{name: str(token) for name, token in special.items() if token is not None},
        },
    )


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file as other libraries do."""
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())
