"""Figures of a model's vocabulary, and of a target to which it could be transferred."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from lsr_prod.corpus.lines import BOM
from lsr_prod.corpus.source_rows import BadRow, as_string, parse_object
from lsr_prod.errors import ConfigError, StorageError
from lsr_prod.inference.terms.surfaces import Surface, Terms, align, cased_terms, notation_of, overlap_share, spell
from lsr_prod.inference.terms.words import fragmentation, term_pieces
from lsr_prod.model import SparseEncoder
from lsr_prod.model.card_update import check_vocabulary_head
from lsr_prod.storage.folders import open_binary
from lsr_prod.training.vocabulary.head import HeadNorms, head_norms
from lsr_prod.training.vocabulary.initialization import semantic
from lsr_prod.training.vocabulary.target import read_embeddings, read_target, target_terms

_NEAREST = 5  # the paper's table 4
_TEXTS_REMEDY = "give JSONL with a field text"


@dataclass(frozen=True, slots=True)
class Neighbors:
    """Old terms that make up the row of a new term: a row of table 4 of the paper."""

    term: str  # a term of the target
    pieces: list[str]  # its sub-tokens in the model's vocabulary
    nearest: list[tuple[str, float]]  # the heaviest terms of the model that make up its row, and their weights
    support: int  # number of terms that make up its row
    shared: bool  # the model also has the term, so its row is copied


@dataclass(frozen=True, slots=True)
class Inspection:
    """Figures of a model and a target."""

    terms: int  # V
    cased: int  # terms with a capital letter
    norms: HeadNorms  # of the head
    target_terms: int | None  # V'; None without a target
    overlap: float | None  # share of the target's terms that the model also has
    # tokens per word in the texts, of the model and of the target; None without texts
    fragmentation: tuple[float, float | None] | None
    neighbors: list[Neighbors]  # of the requested words


def inspect_vocabulary(
    model: str, *, target: str | None, target_embeddings: str | None, words: Sequence[str], texts: Sequence[str]
) -> Inspection:
    """Compute the figures of a model and a target."""
    encoder = SparseEncoder.load(model)
    check_vocabulary_head(encoder.card)
    tokenizer = None if target is None else read_target(target)
    found: list[Neighbors] = []
    overlap = None
    if tokenizer is not None:
        if encoder.card.output_vocabulary == "words":
            raise ConfigError("--target", "the model's output terms are not its tokens", "leave it out")
        whole = encoder.with_card(output_casing="all")  # as in a transfer
        source = Terms.of(whole.tokenizer, whole.vocabulary)
        overlap = overlap_share(align(source, Terms.of(tokenizer, target_terms(tokenizer))))
        if words:
            found = find_neighbors(whole, tokenizer, target_embeddings or str(target), words)
    elif words:
        raise ConfigError("--words", "they need a target vocabulary", "also give --target")
    other = None if tokenizer is None or not texts else fragmentation(list(texts), tokenizer)
    return Inspection(
        terms=encoder.card.vocabulary_size,
        cased=sum(cased_terms(encoder.vocabulary)),
        norms=head_norms(encoder),
        target_terms=None if tokenizer is None else len(tokenizer),
        overlap=overlap,
        fragmentation=(fragmentation(list(texts), encoder.tokenizer), other) if texts else None,
        neighbors=found,
    )


def find_neighbors(
    encoder: SparseEncoder, tokenizer: PreTrainedTokenizerFast, target_embeddings: str, words: Sequence[str]
) -> list[Neighbors]:
    """Return the terms that would make up the rows of words of a target, by semantic and sub-token initialization."""
    terms = target_terms(tokenizer)
    rows = [_row(word, terms) for word in words]
    aligned = align(Terms.of(encoder.tokenizer, encoder.vocabulary), Terms.of(tokenizer, terms))
    combination = semantic(aligned, read_embeddings(target_embeddings, terms, bias=False).embeddings)
    pieces = term_pieces(terms, encoder.tokenizer)
    return [
        Neighbors(
            term=terms[row],
            pieces=[encoder.vocabulary[piece] for piece in pieces[row]],
            nearest=[(encoder.vocabulary[old], weight) for old, weight in combination.entries(row)[:_NEAREST]],
            support=len(combination.entries(row)),
            shared=bool(aligned[row] >= 0),
        )
        for row in rows
    ]


def read_texts(path: str, count: int, options: Mapping[str, str] | None = None) -> list[str]:
    """Return the first texts of a JSONL file, by path or URI, with a field ``text``; blank lines are skipped.

    Raises:
        ConfigError: the file cannot be read, or a line has no text.
    """
    texts: list[str] = []
    try:
        with open_binary(path, options) as file:
            for number, line in enumerate(file, start=1):
                if len(texts) == count:
                    break
                record = line.removeprefix(BOM) if number == 1 else line
                if record.strip():
                    texts.append(_text(record, f"line {number} of {path}"))
    except (OSError, StorageError) as error:
        raise ConfigError("--texts", f"{path} cannot be read ({error})", _TEXTS_REMEDY) from error
    return texts


def _text(line: bytes, where: str) -> str:
    record = parse_object(line)
    if isinstance(record, BadRow):
        raise ConfigError("--texts", f"{where}: {record.detail}", _TEXTS_REMEDY)
    text, problem = as_string("text", record.get("text"))
    if text is None:
        detail = "it has no field text" if problem is None else problem[1]
        raise ConfigError("--texts", f"{where}: {detail}", _TEXTS_REMEDY)
    return text


def _row(word: str, terms: Sequence[str]) -> int:
    term = spell(Surface(word, "initial"), notation_of(terms))
    if term not in terms:
        raise ConfigError(
            "--words", f"{word!r} is not a term of the target", "give words that are a single token of the target"
        )
    return terms.index(term)
