"""The first token of a decoder's texts: one that is always the same, so that the attention has where to sink.

Every token attends to the first one, whatever it is. If that is a word of the text, its state is no longer that word's;
so a tokenizer that adds no such token gets one put before, in its JSON: whoever opens the tokenizer adds it too.
"""

import json
from typing import Any

from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError

__all__ = ["has_first_token", "prepend_first_token"]


def has_first_token(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether the tokenizer begins every text with a special token."""
    ids = tokenizer.backend_tokenizer.encode("a").ids
    plain = tokenizer.backend_tokenizer.encode("a", add_special_tokens=False).ids
    return ids[:1] != plain[:1]


def prepend_first_token(tokenizer: PreTrainedTokenizerFast, config: PreTrainedConfig) -> None:
    """Let the tokenizer begin every text with the model's first token, in place; nothing to do where it does already.

    It is the tokenizer's BOS, else the model's, else the token that ends a text: models that were trained without a BOS
    saw that one between two texts.

    Raises:
        ConfigError: the model has no such token.
    """
    if has_first_token(tokenizer):
        return
    ids: tuple[Any, ...] = (
        tokenizer.bos_token_id,
        _first(config.bos_token_id),
        tokenizer.eos_token_id,
        _first(config.eos_token_id),
    )
    found = next((number for number in ids if number is not None and 0 <= number < config.vocab_size), None)
    token = None if found is None else tokenizer.convert_ids_to_tokens(found)
    if found is None or not isinstance(token, str):
        raise ConfigError("source", "its tokenizer names no token that begins or ends a text", "set its bos_token")
    backend = tokenizer.backend_tokenizer
    backend.post_processor = _processor(_with_first(json.loads(backend.to_str())["post_processor"], token, found))


def _with_first(processor: dict[str, Any] | None, token: str, number: int) -> dict[str, Any]:
    """The JSON of a post-processor that puts a token before a text, and does all that ``processor`` does.

    A template is changed: a second one after it would not see the text any more.
    """
    if processor is None:
        return _template(token, number)
    if processor["type"] == "TemplateProcessing":
        first = {"SpecialToken": {"id": token, "type_id": 0}}
        known = {**processor["special_tokens"], **_template(token, number)["special_tokens"]}
        longer = {form: [first, *processor[form]] for form in ("single", "pair")}
        return {**processor, **longer, "special_tokens": known}
    steps = processor["processors"] if processor["type"] == "Sequence" else [processor]
    at = next((i for i, step in enumerate(steps) if step["type"] == "TemplateProcessing"), None)
    if at is None:
        return {"type": "Sequence", "processors": [*steps, _template(token, number)]}
    changed = _with_first(steps[at], token, number)
    return {"type": "Sequence", "processors": [*steps[:at], changed, *steps[at + 1 :]]}


def _template(token: str, number: int) -> dict[str, Any]:
    first = {"SpecialToken": {"id": token, "type_id": 0}}
    texts = [{"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB")]
    return {
        "type": "TemplateProcessing",
        "single": [first, texts[0]],
        "pair": [first, *texts],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def _processor(value: dict[str, Any]) -> processors.PostProcessor:
    """The library makes one of JSON only with a tokenizer around it."""
    around = json.loads(Tokenizer(models.BPE()).to_str())
    made: processors.PostProcessor = Tokenizer.from_str(json.dumps({**around, "post_processor": value})).post_processor
    return made


def _first(ids: int | list[int] | None) -> int | None:
    return ids[0] if isinstance(ids, list) else ids
