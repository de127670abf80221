"""Surface forms: the texts of vocabulary terms, without the markers of their tokenizer.

There are three notations with markers. WordPiece marks continuations of a word (``##ing``); byte-level BPE and
SentencePiece mark the start of a word (``Ġthe``, ``▁the``), and byte-level BPE writes each byte as one character. A
vocabulary of whole words has no markers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.pre_tokenizers import ByteLevel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Notation = Literal["word_piece", "byte_level", "sentence_piece", "words"]
_MARKERS: dict[str, Notation] = {"##": "word_piece", "Ġ": "byte_level", "▁": "sentence_piece"}
_RARE = 0.01  # share of terms that may start with another notation's marker by chance
# The roles of special tokens, and the names that tokenizers use for each.
_ROLES = {
    "pad": ("pad_token",),
    "unknown": ("unk_token",),
    "begin": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
_DECODER = ByteLevelDecoder()
_ENCODER = ByteLevel(add_prefix_space=False, use_regex=False)


class Surface(NamedTuple):
    """Surface form of a term."""

    text: str  # the text without markers; the term itself for special tokens and bytes that do not decode to text
    # ``initial`` at the start of a word, ``inner`` inside a word, ``special`` for anything that is not text
    place: Literal["initial", "inner", "special"]


@dataclass(frozen=True, slots=True)
class Terms:
    """A vocabulary with the roles of its special tokens."""

    terms: Sequence[str]  # the terms in their order
    # ``pad``, ``unknown``, ``begin``, ``end`` or ``mask`` -> the term with this role
    roles: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerFast", terms: Sequence[str]) -> "Terms":
        """Return terms with the special tokens of their tokenizer."""
        known, roles = set(terms), {}
        for role, names in _ROLES.items():
            tokens = [str(token) for name in names if (token := getattr(tokenizer, name, None)) is not None]
            if found := [token for token in tokens if token in known]:
                roles[role] = found[0]
        return cls(terms, roles)


def align(source: Terms, target: Terms) -> NDArray[np.int64]:
    """Return the source term equal to each target term (vocabulary-transfer, 4.2.2: O = V n V').

    Case and accents must be equal too. Special tokens are aligned by role; a target token with several roles takes the
    first role that the source has.

    Returns:
        [V'], row of the source, or -1 for a new term.
    """
    rows: dict[Surface, int] = {}
    for row, surface in enumerate(surfaces(source.terms)):
        rows.setdefault(surface, row)
    found = np.array([rows.get(surface, -1) for surface in surfaces(target.terms)], dtype=np.int64)
    row_of = {term: row for row, term in enumerate(source.terms)}
    place_of = {term: place for place, term in enumerate(target.terms)}
    for role in reversed(list(_ROLES)):
        if role in source.roles and role in target.roles:
            found[place_of[target.roles[role]]] = row_of[source.roles[role]]
    return found


def overlap_share(aligned: NDArray[np.int64]) -> float:
    """Return the share of the target's terms that the source has."""
    return float((aligned >= 0).mean())


def notation_of(vocabulary: Sequence[str]) -> Notation:
    """Return the notation of a vocabulary: that of the most frequent marker."""
    counts = {marker: sum(term.startswith(marker) for term in vocabulary) for marker in _MARKERS}
    marker = max(counts, key=lambda marker: counts[marker])
    return _MARKERS[marker] if counts[marker] > _RARE * len(vocabulary) else "words"


def surfaces(vocabulary: Sequence[str]) -> list[Surface]:
    """Return the surface form of each term of a vocabulary."""
    notation = notation_of(vocabulary)
    return [_surface(term, notation) for term in vocabulary]


def spell(surface: Surface, notation: Notation) -> str:
    """Return the term of a surface form in a notation."""
    text, place = surface
    if place == "special":
        return text
    match notation:
        case "word_piece":
            return text if place == "initial" else f"##{text}"
        case "sentence_piece":
            return f"▁{text}" if place == "initial" else text
        case "byte_level":
            spaced = f" {text}" if place == "initial" else text
            return "".join(piece for piece, _ in _ENCODER.pre_tokenize_str(spaced))
        case "words":
            if place == "inner":
                raise ValueError(f"{text!r} is part of a word, and this vocabulary has whole words only")
            return text


def is_special(term: str) -> bool:
    """Return whether a term is spelled like a special token: ``[CLS]``, ``<s>``, ``<|endoftext|>``, ``<0x0A>``."""
    return len(term) > 2 and (term[0] + term[-1]) in ("[]", "<>")


def _surface(term: str, notation: Notation) -> Surface:
    if is_special(term):
        return Surface(term, "special")
    match notation:
        case "word_piece":
            return Surface(term[2:], "inner") if term.startswith("##") and len(term) > 2 else Surface(term, "initial")
        case "sentence_piece":
            return Surface(term[1:], "initial") if term.startswith("▁") else Surface(term, "inner")
        case "byte_level":
            text = _DECODER.decode([term])
            if "\ufffd" in text:  # part of a character
                return Surface(term, "special")
            return Surface(text[1:], "initial") if text.startswith(" ") else Surface(text, "inner")
        case "words":
            return Surface(term, "initial")


class UncasedGroups(NamedTuple):
    """Mapping from V terms to U uncased terms (casing, 3: uncased vocabulary only).

    The weight of an uncased term is the maximum over the rows of its group.
    """

    rows: list[int]  # the K kept rows, rising; all others are dropped
    groups: list[int]  # group of each kept row, K numbers below U
    terms: list[str]  # U uncased terms, in the notation of the vocabulary


def cased_terms(vocabulary: Sequence[str]) -> list[bool]:
    """Return for every term whether it has a capital letter.

    Markers of word pieces and special tokens do not count, and the terms of a byte-level vocabulary are decoded.
    """
    return [_is_cased(surface) for surface in surfaces(vocabulary)]


def uncased_groups(vocabulary: Sequence[str]) -> UncasedGroups:
    """Drop cased terms whose lowercase form is a term, and lowercase the other cased terms.

    Special tokens do not change.
    """
    notation, plain = notation_of(vocabulary), surfaces(vocabulary)
    lowercase = {surface for surface in plain if not _is_cased(surface)}
    rows: list[int] = []
    groups: list[int] = []
    terms: list[str] = []
    group_of: dict[Surface, int] = {}
    for row, surface in enumerate(plain):
        form = lowered(surface)
        if form != surface and form in lowercase:
            continue
        if form == surface:
            group_of[surface] = len(terms)
            terms.append(vocabulary[row])
        elif form not in group_of:
            group_of[form] = len(terms)
            terms.append(spell(form, notation))
        rows.append(row)
        groups.append(group_of[form])
    return UncasedGroups(rows, groups, terms)


def lowered(surface: Surface) -> Surface:
    """Return the lowercase form; special tokens and bytes that do not decode to text do not change."""
    return surface._replace(text=surface.text.lower()) if _is_cased(surface) else surface


def _is_cased(surface: Surface) -> bool:
    return surface.place != "special" and not is_special(surface.text) and surface.text != surface.text.lower()
