"""Token ids of texts, equal to those of ``SparseEncoder``, in any process that has the JSON of the tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from lsr_prod.errors import ConfigError
from lsr_prod.formats.bundle import TOKENIZER_FILE
from lsr_prod.formats.card import QUERY_FOLDER, EncoderCard


@dataclass(frozen=True, slots=True)
class TextForm:
    """Form of texts of one kind.

    Attributes:
        prompt: text before each text.
        max_length: maximum number of tokens, special tokens included; None: texts are not truncated.
    """

    prompt: str
    max_length: int | None


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Settings that determine token ids.

    Attributes:
        tokenizer: content of ``tokenizer.json``.
        query: form of a query.
        document: form of a document or of a plain text.
        query_tokenizer: content of the ``tokenizer.json`` of a separate query encoder; None: ``tokenizer``.
    """

    tokenizer: str = field(repr=False)
    query: TextForm
    document: TextForm
    query_tokenizer: str | None = field(default=None, repr=False)

    @classmethod
    def of_model(
        cls, model: Path, *, query_max_length: int | None, document_max_length: int | None, plain: bool
    ) -> "TokenSettings":
        """Return tokenizer and prompts of a model directory with the given lengths."""
        card = EncoderCard.load(model)
        tokenizer, query_prompt, own = (model / TOKENIZER_FILE).read_text(encoding="utf-8"), card.query_prompt, None
        if card.query_encoder == "separate":
            query_prompt = EncoderCard.load(model / QUERY_FOLDER).query_prompt
            own = (model / QUERY_FOLDER / TOKENIZER_FILE).read_text(encoding="utf-8")
        found = cls(
            tokenizer,
            TextForm("" if plain else query_prompt, query_max_length),
            TextForm("" if plain else card.document_prompt, document_max_length),
            own if own != tokenizer else None,
        )
        for kind, form, content in (
            ("query", found.query, found.query_tokenizer or tokenizer),
            ("document", found.document, tokenizer),
        ):
            plain_tokenizer = Tokenizer.from_str(content)
            plain_tokenizer.no_truncation()
            taken = len(plain_tokenizer.encode(form.prompt).ids)
            if form.max_length is not None and taken >= form.max_length:
                raise ConfigError(
                    f"{kind}_max_length",
                    f"{form.max_length} leaves no token for text",
                    f"give more than {taken}, the number of special tokens and tokens of the prompt",
                )
        return found

    def token_ids(self, texts: Sequence[str], form: TextForm) -> list[npt.NDArray[np.int32]]:
        """Return the token ids of each text, int32 [L]."""
        return _token_ids(self.tokenizer, texts, form)

    def query_ids(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """Return the token ids of each query, int32 [L]."""
        return _token_ids(self.query_tokenizer or self.tokenizer, texts, self.query)


def _token_ids(content: str, texts: Sequence[str], form: TextForm) -> list[npt.NDArray[np.int32]]:
    tokenizer = _tokenizer(content, form.max_length)
    encodings: list[Any] = tokenizer.encode_batch_fast([form.prompt + text for text in texts])
    return [np.array(encoding.ids, np.int32) for encoding in encodings]


@lru_cache(maxsize=4)  # a Ray worker process runs many tasks, and parsing takes longer than a small task
def _tokenizer(content: str, max_length: int | None) -> Tokenizer:
    tokenizer = Tokenizer.from_str(content)
    tokenizer.no_padding()
    if max_length is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(max_length)
    return tokenizer
