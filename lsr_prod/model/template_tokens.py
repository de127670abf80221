"""Special tokens that an encoder adds to the template of a tokenizer: a start token, and tokens after the text.

All tokens of a decoder attend strongly to the first one (attention sink). If the first token is a word of the text,
its state no longer represents that word. A tokenizer that adds no start token is therefore changed, in its JSON, to add
one.

Tokens after the text are there to be pooled, see ``appended_heads``. As a part of the template they are in every text
that any process tokenizes, also in a truncated one, because truncation leaves room for special tokens.
"""

import json
from typing import Any

from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError

_ROLES = {"bos": "a BOS", "eos": "an EOS", "sep": "a SEP"}


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
    token, number = _special_token(tokenizer, config, ("bos", "eos"))
    _extend(tokenizer, token, number, before=1)


def append_tokens(tokenizer: PreTrainedTokenizerFast, config: PreTrainedConfig, count: int) -> None:
    """Change the tokenizer, in place, so that ``count`` EOS tokens follow every text and its other special tokens."""
    token, number = _special_token(tokenizer, config, ("eos", "sep"))
    _extend(tokenizer, token, number, after=count)


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


_PLAIN: dict[str, Any] = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB")],
    "special_tokens": {},
}


def _processor(value: dict[str, Any]) -> processors.PostProcessor:
    """Build a post-processor from JSON; tokenizers can only parse one as a part of a tokenizer."""
    around = json.loads(Tokenizer(models.BPE()).to_str())
    made: processors.PostProcessor = Tokenizer.from_str(json.dumps({**around, "post_processor": value})).post_processor
    return made


def _first(ids: int | list[int] | None) -> int | None:
    return ids[0] if isinstance(ids, list) else ids
