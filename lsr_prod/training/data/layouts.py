"""Layouts of training rows: content that a row has in addition to, or instead of, the token ids of its texts.

Rows without a layout have token ids only. Four kinds of stages need more:

- ``PackedLayout``: blocks of equal length, texts separated by the end token (causal language modeling);
- ``WordLayout``: token ids word by word, and the words that are output terms (masked words);
- ``TeacherLayout``: token ids of the text by the tokenizer of a teacher, in the place of the query;
- ``QueryTermLayout``: output terms of the query in the place of its token ids (inference-free queries).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.words import TermReader, split_words, word_pieces
from lsr_prod.model.layout_reader import parts_folder
from lsr_prod.storage.formats import bundle_format, digests

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class TextForm:
    """Form of texts of one kind."""

    prompt: str  # text before each text
    max_length: int | None  # maximum number of tokens, special tokens included; None: texts are not truncated


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Settings that determine token ids."""

    tokenizer: str = field(repr=False)  # content of ``tokenizer.json``
    query: TextForm  # form of a query
    document: TextForm  # form of a document or of a plain text
    # content of the ``tokenizer.json`` of a separate query encoder; None: ``tokenizer``
    query_tokenizer: str | None = field(default=None, repr=False)

    @classmethod
    def of_model(
        cls, model: Path, *, query_max_length: int | None, document_max_length: int | None, plain: bool
    ) -> "TokenSettings":
        """Return tokenizer and prompts of a model directory with the given lengths."""
        card = bundle_format.EncoderCard.load(model)
        tokenizer = (parts_folder(model) / bundle_format.TOKENIZER_FILE).read_text(encoding="utf-8")
        query_prompt, own = card.query_prompt, None
        if card.query_encoder == "separate":
            query_prompt = bundle_format.EncoderCard.load(model / bundle_format.QUERY_FOLDER).query_prompt
            own = (model / bundle_format.QUERY_FOLDER / bundle_format.TOKENIZER_FILE).read_text(encoding="utf-8")
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
                problem = f"{form.max_length} leaves no token for text"
                remedy = f"give more than {taken}, the number of special tokens and tokens of the prompt"
                raise ConfigError(f"{kind}_max_length", problem, remedy)
        return found

    def token_ids(self, texts: Sequence[str], form: TextForm) -> list[np.typing.NDArray[np.int32]]:
        """Return the token ids of each text, int32 [L]."""
        return _token_ids(self.tokenizer, texts, form)

    def query_ids(self, texts: Sequence[str]) -> list[np.typing.NDArray[np.int32]]:
        """Return the token ids of each query, int32 [L]."""
        return _token_ids(self.query_tokenizer or self.tokenizer, texts, self.query)


def _token_ids(content: str, texts: Sequence[str], form: TextForm) -> list[np.typing.NDArray[np.int32]]:
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


Ids = np.typing.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Texts packed into blocks."""

    block: int  # tokens of a block
    end_id: int  # token between two texts

    def to_json(self) -> dict[str, Any]:
        """Settings that determine the rows."""
        return {"layout": "packed", "block": self.block, "end_id": self.end_id}


@dataclass(frozen=True, slots=True)
class WordLayout:
    """Texts with marked words."""

    vocabulary: tuple[str, ...] = field(repr=False)  # the output terms

    def to_json(self) -> dict[str, Any]:
        """Settings that determine the rows."""
        return {"layout": "worded", "vocabulary": digests.digest_json(list(self.vocabulary))}


@dataclass(frozen=True, slots=True)
class TeacherLayout:
    """Texts with the token ids of a teacher."""

    teacher: TokenSettings  # settings of its tokenizer; ``document`` applies to the text

    def to_json(self) -> dict[str, Any]:
        """Settings that determine the rows."""
        form = self.teacher.document
        tokenizer = digests.digest_json(self.teacher.tokenizer)
        return {"layout": "taught", "tokenizer": tokenizer, "prompt": form.prompt, "max_length": form.max_length}


@dataclass(frozen=True, slots=True)
class QueryTermLayout:
    """Queries as the output terms in them; documents as token ids."""

    card: bundle_format.EncoderCard  # of the encoder, which has inference-free queries
    vocabulary: tuple[str, ...] = field(repr=False)  # its output terms

    def to_json(self) -> dict[str, Any]:
        """Settings that determine the rows."""
        return {
            "layout": "asked",
            "vocabulary": self.card.vocabulary_sha256,
            "output_casing": self.card.output_casing,
            "query_max_length": self.card.query_max_length,
            **{name: getattr(self.card, name) for name in special_fields(self.card)},
        }


def special_fields(card: bundle_format.EncoderCard) -> tuple[str, ...]:
    """Return the field of a card whose queries hold special tokens; the digests of others are older than the field."""
    return () if card.query_special_tokens == "skipped" else ("query_special_tokens",)


Layout = PackedLayout | WordLayout | TeacherLayout | QueryTermLayout


def pack(texts: Iterable[Ids], layout: PackedLayout) -> Iterator[Ids]:
    """Concatenate texts and cut them into blocks; the last block is shorter.

    Yields:
        int32 [block]; a last block of one token is omitted, because it has nothing to predict.
    """
    held: list[Ids] = []
    size = 0
    for text in texts:
        ended = text if layout.end_id in (text[0], text[-1]) else np.append(text, np.int32(layout.end_id))
        held.append(ended)
        size += len(ended)
        if size >= layout.block:
            joined = np.concatenate(held)
            whole = size // layout.block * layout.block
            yield from joined[:whole].reshape(-1, layout.block)
            held, size = [joined[whole:]], size - whole
    if size > 1:
        yield np.concatenate(held)


def word_rows(texts: Sequence[str], tokens: TokenSettings, form: TextForm, layout: WordLayout) -> list[tuple[Ids, Ids]]:
    """Tokenize each text word by word and mark the words that are output terms.

    Returns:
        For each text its token ids, int32 [L], special tokens included; and int32 [3 w]: first position, end position
        (exclusive) and term id of each of the w words that are output terms.
    """
    tokenizer, splitter, before, after = _word_tokenizer(tokens.tokenizer)
    assert form.max_length is not None
    room = form.max_length - len(before) - len(after)
    terms = _term_numbers(layout.vocabulary)
    words = [split_words(text, splitter) for text in texts]
    known = list(dict.fromkeys(word for of_text in words for word in of_text))
    pieces = dict(zip(known, word_pieces(known, tokenizer), strict=True))
    rows = []
    for of_text in words:
        ids, spans = list(before), list[int]()
        cut = False
        for word in of_text:
            piece = pieces[word]
            cut = cut or len(ids) - len(before) + len(piece) > room
            if cut or not piece:
                continue
            if word in terms:
                spans += (len(ids), len(ids) + len(piece), terms[word])
            ids += piece
        rows.append((np.array([*ids, *after], np.int32), np.array(spans, np.int32)))
    return rows


@lru_cache(maxsize=2)  # a Ray worker process runs many tasks
def _word_tokenizer(content: str) -> tuple["PreTrainedTokenizerFast", "PreTrainedTokenizerFast", list[int], list[int]]:
    """Return a tokenizer, a splitter into its words, and its special tokens before and after a text."""
    backend = Tokenizer.from_str(content)
    backend.no_padding()
    backend.no_truncation()
    encoding = backend.encode("a")
    inside = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
    first, last = (inside[0], inside[-1] + 1) if inside else (len(encoding.ids), len(encoding.ids))
    # Splitting into words uses the normalizer alone; a tokenizer without a vocabulary does it faster.
    splitter = Tokenizer(WordLevel({"a": 0}, "a"))
    if backend.normalizer is not None:
        splitter.normalizer = backend.normalizer
    return _fast(backend), _fast(splitter), encoding.ids[:first], encoding.ids[last:]


def _fast(backend: Tokenizer) -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(tokenizer_object=backend)  # type: ignore[no-untyped-call]
    return fast


def query_terms(texts: Sequence[str], tokens: TokenSettings, layout: QueryTermLayout) -> list[Ids]:
    """Return the distinct output terms of each query, int32 [t]."""
    reader = _term_reader(tokens.tokenizer, layout)
    return [np.array(reader.query(text).ids, np.int32) for text in texts]


@lru_cache(maxsize=2)
def _term_reader(tokenizer: str, layout: QueryTermLayout) -> TermReader:
    return TermReader(tokenizer, layout.card, layout.vocabulary)


@lru_cache(maxsize=2)
def _term_numbers(vocabulary: tuple[str, ...]) -> dict[str, int]:
    return {term: number for number, term in enumerate(vocabulary)}
