"""Casing of output terms (papers/casing.txt): cased terms, and the uncased form of a vocabulary."""

from collections.abc import Sequence
from typing import NamedTuple

from lsr_prod.terms.surfaces import Surface, is_special, notation_of, spell, surfaces


class UncasedGroups(NamedTuple):
    """Mapping from V terms to U uncased terms (casing, 3: uncased vocabulary only).

    The weight of an uncased term is the maximum over the rows of its group.

    Attributes:
        rows: the K kept rows, rising; all others are dropped.
        groups: group of each kept row, K numbers below U.
        terms: U uncased terms, in the notation of the vocabulary.
    """

    rows: list[int]
    groups: list[int]
    terms: list[str]


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
