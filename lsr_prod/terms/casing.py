"""Casing of output terms (papers/casing.txt): which are cased, and how a vocabulary becomes an uncased one."""

from collections.abc import Sequence
from typing import NamedTuple

from lsr_prod.terms.surfaces import Surface, is_special, notation_of, spell, surfaces

__all__ = ["UncasedGroups", "cased_terms", "lowered", "uncased_groups"]


class UncasedGroups(NamedTuple):
    """How V terms become U uncased ones (casing, 3: uncased vocabulary only).

    The weight of an uncased term is the maximum over the rows of its group.

    Attributes:
        rows: K rows of the V that are kept, ascending; all others are dropped.
        groups: K numbers below U, the group of each kept row.
        terms: U uncased terms, in the notation of the vocabulary.
    """

    rows: list[int]
    groups: list[int]
    terms: list[str]


def cased_terms(vocabulary: Sequence[str]) -> list[bool]:
    """Which terms have a capital letter.

    Markers of word pieces are no letters, special tokens are no words, and the terms of a byte-level vocabulary are
    read as the text that they stand for.

    Args:
        vocabulary: V terms of a WordPiece, byte-level BPE or SentencePiece vocabulary, or whole words.
    """
    return [_is_cased(surface) for surface in surfaces(vocabulary)]


def uncased_groups(vocabulary: Sequence[str]) -> UncasedGroups:
    """Drop the cased terms whose lowercase form is a term; those that are there only cased become it.

    Special tokens stay as they are.

    Args:
        vocabulary: V terms.
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
    """The lowercase form; special tokens, and bytes that are no text, are no words and stay as they are."""
    return surface._replace(text=surface.text.lower()) if _is_cased(surface) else surface


def _is_cased(surface: Surface) -> bool:
    return surface.place != "special" and not is_special(surface.text) and surface.text != surface.text.lower()
