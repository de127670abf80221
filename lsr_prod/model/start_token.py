"""Start token of the texts of a decoder: a special token that serves as attention sink.

All tokens attend strongly to the first one (attention sink). If the first token is a word of the text, its state no
longer represents that word. A tokenizer that adds no start token is therefore changed, in its JSON, to add one.
"""

import json
from typing import Any

from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError


def has_start_token(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Return whether the tokenizer starts every text with a special token."""
    ids = tokenizer.backend_tokenizer.encode("a").ids
    plain = tokenizer.backend_tokenizer.encode("a", add_special_tokens=False).ids
    return ids[:1] != plain[:1]


def prepend_start_token(tokenizer: PreTrainedTokenizerFast, config: PreTrainedConfig) -> None:
    """Change the tokenizer, in place, so that it starts every text with a special token, unless it already does.

    The token is the BOS of the tokenizer or of the model; without one, the EOS: models trained without a BOS saw the
    EOS between two texts.
    """
    if has_start_token(tokenizer):
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
        raise ConfigError("source", "its tokenizer has neither a BOS nor an EOS token", "set its bos_token")
    backend = tokenizer.backend_tokenizer
    backend.post_processor = _processor(_with_first(json.loads(backend.to_str())["post_processor"], token, found))


def _with_first(processor: dict[str, Any] | None, token: str, number: int) -> dict[str, Any]:
    """Return the JSON of a post-processor that prepends a token to a text and then does the work of ``processor``.

    An existing template is changed, because a second template after it would not receive the text.
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
    """Build a post-processor from JSON; tokenizers can only parse one as a part of a tokenizer."""
    around = json.loads(Tokenizer(models.BPE()).to_str())
    made: processors.PostProcessor = Tokenizer.from_str(json.dumps({**around, "post_processor": value})).post_processor
    return made


def _first(ids: int | list[int] | None) -> int | None:
    return ids[0] if isinstance(ids, list) else ids
