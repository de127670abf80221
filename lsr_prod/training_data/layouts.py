"""What a row of a training set holds beside, or instead of, a text's token ids.

A plain row has them alone. Four kinds of stages want more:

- ``Packed``: blocks of one length, texts one behind the other with the end token between them (causal modelling);
- ``Worded``: the tokens of each word for itself, and which of the words are output terms (masked words);
- ``Taught``: the text as a teacher's tokenizer reads it, in the place of the query;
- ``Asked``: a row with a query has the query's output terms (queries without a model).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.digest import digest_json
from lsr_prod.terms.reader import TermReader
from lsr_prod.terms.words import split_words, word_pieces
from lsr_prod.training_data.tokens import TextForm, TokenSettings

__all__ = ["Asked", "Layout", "Packed", "Taught", "Worded", "pack", "query_terms", "word_rows"]

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Packed:
    """Texts are packed into blocks.

    Attributes:
        block: tokens of a block.
        end_id: token between two texts.
    """

    block: int
    end_id: int

    def to_json(self) -> dict[str, Any]:
        """What of it decides a row."""
        return {"layout": "packed", "block": self.block, "end_id": self.end_id}


@dataclass(frozen=True, slots=True)
class Worded:
    """Words are marked.

    Attributes:
        vocabulary: the output terms.
    """

    vocabulary: tuple[str, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """What of it decides a row."""
        return {"layout": "worded", "vocabulary": digest_json(list(self.vocabulary))}


@dataclass(frozen=True, slots=True)
class Taught:
    """A teacher reads the text too.

    Attributes:
        teacher: its tokenizer; ``document`` is the form of the text.
    """

    teacher: TokenSettings

    def to_json(self) -> dict[str, Any]:
        """What of it decides a row."""
        form = self.teacher.document
        tokenizer = digest_json(self.teacher.tokenizer)
        return {"layout": "taught", "tokenizer": tokenizer, "prompt": form.prompt, "max_length": form.max_length}


@dataclass(frozen=True, slots=True)
class Asked:
    """Queries are the output terms that stand in them, in the place of their token ids; documents are texts as ever.

    Attributes:
        card: of the encoder, whose queries have no model.
        vocabulary: its output terms.
    """

    card: EncoderCard
    vocabulary: tuple[str, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """What of it decides a row."""
        return {
            "layout": "asked",
            "vocabulary": self.card.vocabulary_sha256,
            "output_casing": self.card.output_casing,
            "query_max_length": self.card.query_max_length,
        }


Layout = Packed | Worded | Taught | Asked


def pack(texts: Iterable[Ids], layout: Packed) -> Iterator[Ids]:
    """Texts one behind the other, cut into blocks; the last block is shorter.

    Args:
        texts: int32 token ids of each; a text that begins or ends with the end token gets no further one.
        layout: length of a block, and the end token.

    Yields:
        int32 [block]; the last one has two tokens at least, for there is nothing to predict in one.
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


def word_rows(texts: Sequence[str], tokens: TokenSettings, form: TextForm, layout: Worded) -> list[tuple[Ids, Ids]]:
    """Token ids of each text, word by word, and the words that are output terms.

    Args:
        texts: plain texts.
        tokens: the tokenizer.
        form: tokens at most; a word that does not fit whole is left out with all after it.
        layout: the output terms.

    Returns:
        For each text int32 [L], special tokens included; and int32 [3 w], for each word that is an output term its
        first position, the one behind its last, and the term.
    """
    tokenizer, splitter, before, behind = _word_tokenizer(tokens.tokenizer)
    assert form.max_length is not None
    room = form.max_length - len(before) - len(behind)
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
        rows.append((np.array([*ids, *behind], np.int32), np.array(spans, np.int32)))
    return rows


@lru_cache(maxsize=2)  # a process of Ray runs many tasks
def _word_tokenizer(content: str) -> tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast, list[int], list[int]]:
    """A tokenizer; one that splits words as it does; and its special tokens before and behind a text."""
    backend = Tokenizer.from_str(content)
    backend.no_padding()
    backend.no_truncation()
    encoding = backend.encode("a")
    inside = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
    first, last = (inside[0], inside[-1] + 1) if inside else (len(encoding.ids), len(encoding.ids))
    # Words are split by the normalizer alone, which is looked at for every text: without a vocabulary that is quick.
    splitter = Tokenizer(WordLevel({"a": 0}, "a"))
    if backend.normalizer is not None:
        splitter.normalizer = backend.normalizer
    return _fast(backend), _fast(splitter), encoding.ids[:first], encoding.ids[last:]


def _fast(backend: Tokenizer) -> PreTrainedTokenizerFast:
    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(tokenizer_object=backend)  # type: ignore[no-untyped-call]
    return fast


def query_terms(texts: Sequence[str], tokens: TokenSettings, layout: Asked) -> list[Ids]:
    """The output terms of each query, int32 [t], each once."""
    reader = _term_reader(tokens.tokenizer, layout)
    return [np.array(reader.query(text).ids, np.int32) for text in texts]


@lru_cache(maxsize=2)
def _term_reader(tokenizer: str, layout: Asked) -> TermReader:
    return TermReader(tokenizer, layout.card, layout.vocabulary)


@lru_cache(maxsize=2)
def _term_numbers(vocabulary: tuple[str, ...]) -> dict[str, int]:
    return {term: number for number, term in enumerate(vocabulary)}
