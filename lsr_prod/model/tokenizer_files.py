"""Reading and writing of a tokenizer's files, and the special tokens that an encoder adds to its template.

All tokens of a decoder attend strongly to the first one (attention sink). If the first token is a word of the text,
its state no longer represents that word. A tokenizer that adds no start token is therefore changed, in its JSON, to add
one.

The states of tokens that follow the text are pooled by ``heads.AppendedHeads``. As a part of the template these tokens
are in every text that any process tokenizes, also in a truncated one, because truncation leaves room for special
tokens.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, processors
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError, LsrError
from lsr_prod.model.layout_reader import read_json
from lsr_prod.storage.drafts import write_file
from lsr_prod.storage.formats.bundle_format import TOKENIZER_FILE

_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
_LONGEST_CAUSE = 300  # characters of the message of another library
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_ROLES = {"bos": "a BOS", "eos": "an EOS", "sep": "a SEP"}
_PLAIN: dict[str, Any] = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB")],
    "special_tokens": {},
}


def read_tokenizer(folder: Path, reader: Any = None) -> PreTrainedTokenizerFast:
    """Return the fast tokenizer of a folder."""
    try:
        with readable(folder, "the tokenizer"):
            tokenizer = (reader or tokenizer_reader(folder)).from_pretrained(folder, trust_remote_code=False)
    except OSError as error:
        raise ConfigError("source", f"{folder} has no tokenizer", "add its tokenizer.json") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError("source", f"the tokenizer of {folder} has no tokenizer.json", "convert it to a fast one")
    if tokenizer.truncation_side != "right":
        problem = f"the tokenizer of {folder} cuts texts at their start"
        raise ConfigError("source", problem, "set truncation_side: right")
    if tokenizer.split_special_tokens:
        problem = f"the tokenizer of {folder} splits special tokens of a text"
        raise ConfigError("source", problem, "set split_special_tokens: false")
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


def has_start_token(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Return whether the tokenizer starts every text with a special token."""
    ids = tokenizer.backend_tokenizer.encode("a").ids
    return ids[:1] != tokenizer.backend_tokenizer.encode("a", add_special_tokens=False).ids[:1]


def prepend_start_token(tokenizer: PreTrainedTokenizerFast, config: PreTrainedConfig) -> None:
    """Change the tokenizer, in place, so that it starts every text with a special token, unless it already does.

    The token is the BOS of the tokenizer or of the model; without one, the EOS: models trained without a BOS saw the
    EOS between two texts.
    """
    if has_start_token(tokenizer):
        return
    token, number = _special_token(tokenizer, config, ("bos", "eos"))
    _extend(tokenizer, token, number, before=1)


def append_tokens(tokenizer: PreTrainedTokenizerFast, config: PreTrainedConfig, count: int) -> None:
    """Change the tokenizer, in place, so that ``count`` EOS tokens follow every text and its other special tokens."""
    token, number = _special_token(tokenizer, config, ("eos", "sep"))
    _extend(tokenizer, token, number, after=count)


@contextmanager
def readable(
    folder: Path, what: str, remedy: str = "copy it again if it is damaged, or give a model without this setting"
) -> Iterator[None]:
    """Turn errors of the libraries that read a model into one sentence; a file that is absent stays an ``OSError``.

    transformers, tokenizers and safetensors raise errors of any type for a file that is damaged or does not fit.
    ``remedy`` is the remedy.
    """
    try:
        yield
    except (OSError, LsrError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_CAUSE]}"
        problem = f"{what} of {folder} cannot be read ({why})"
        raise ConfigError("source", problem, remedy) from error


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file as other libraries do."""
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())


def _special_token(
    tokenizer: PreTrainedTokenizerFast, config: PreTrainedConfig, roles: tuple[str, ...]
) -> tuple[str, int]:
    """Return text and id of the first special token of the tokenizer or the model with one of the roles."""
    for role in roles:
        for owner in (tokenizer, config):
            number = _first(getattr(owner, f"{role}_token_id", None))
            if number is None or not 0 <= number < config.vocab_size:
                continue
            token = tokenizer.convert_ids_to_tokens(number)
            if isinstance(token, str):
                return token, number
    names = " nor ".join(_ROLES[role] for role in roles)
    raise ConfigError("source", f"its tokenizer has neither {names} token", f"set its {roles[0]}_token")


def _first(ids: int | list[int] | None) -> int | None:
    return ids[0] if isinstance(ids, list) else ids


def _extend(tokenizer: PreTrainedTokenizerFast, token: str, number: int, *, before: int = 0, after: int = 0) -> None:
    """Change the tokenizer, in place, so that it puts copies of a token before and after a text.

    An existing template is changed, because a second template after it would not receive the text.
    """
    special = {"SpecialToken": {"id": token, "type_id": 0}}

    def extended(processor: dict[str, Any] | None) -> dict[str, Any]:
        if processor is None:
            return extended(_PLAIN)
        if processor["type"] == "TemplateProcessing":
            known = {**processor["special_tokens"], token: {"id": token, "ids": [number], "tokens": [token]}}
            longer = {form: [special] * before + processor[form] + [special] * after for form in ("single", "pair")}
            return {**processor, **longer, "special_tokens": known}
        steps = processor["processors"] if processor["type"] == "Sequence" else [processor]
        at = next((i for i, step in enumerate(steps) if step["type"] == "TemplateProcessing"), None)
        if at is None:
            return {"type": "Sequence", "processors": [*steps, extended(_PLAIN)]}
        return {"type": "Sequence", "processors": [*steps[:at], extended(steps[at]), *steps[at + 1 :]]}

    backend = tokenizer.backend_tokenizer
    backend.post_processor = _processor(extended(json.loads(backend.to_str())["post_processor"]))


def _processor(value: dict[str, Any]) -> processors.PostProcessor:
    """Build a post-processor from JSON; tokenizers can only parse one as a part of a tokenizer."""
    around = json.loads(Tokenizer(models.BPE()).to_str())
    made: processors.PostProcessor = Tokenizer.from_str(json.dumps({**around, "post_processor": value})).post_processor
    return made
