"""Rows of a click log: validated values, or a bad row with its reason."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from lsr_prod.config.click_set import ClickColumns, ClickSetSettings
from lsr_prod.corpus.formats.interface import Record
from lsr_prod.corpus.source_rows import BadRow, TypedValue, as_string, control_character, is_visible, shorten, show

_INTEGER_ID = re.compile(r"\+?\d{1,15}(?:\.0*)?")
_NUMBER = re.compile(r"\+?0*(\d{1,9})(?:\.0*)?")  # sums of 9e9 rows fit into an int64
_WORD = re.compile(r"\w")


class ClickRow(NamedTuple):
    """One valid row."""

    key: str  # the normalized query; queries with equal keys are one query
    query: str  # the query as it is written in the row
    document: str  # id of the document
    title: str  # its title, or ""
    text: str  # its further text, or ""
    clicks: int  # clicks that the row stands for
    impressions: int  # impressions that the row stands for; 0 if unknown
    position: int  # position in the results, from 1; 0 if unknown
    cluster: str  # cluster of the query, or ""


def normalized(text: str) -> str:
    """Return a text in NFKC, case-folded, with every run of white space as one space; equal forms are duplicates."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def validate_click(record: Record, settings: ClickSetSettings) -> ClickRow | BadRow:
    """Validate one record.

    Returns:
        The row, or a bad row with one of the reasons of a corpus, ``bad_number`` or ``no_words`` (a query of
        punctuation). Its ``field`` is the column.
    """
    columns, values = settings.columns, record.values
    found = _Values(values)
    query, document = found.text(columns.query), found.text(columns.document, number=True)
    title, text = found.text(columns.title), found.text(columns.text)
    clicks, impressions = found.number(columns.clicks, absent=1), found.number(columns.impressions, absent=0)
    position, cluster = found.number(columns.position, absent=0), found.text(columns.cluster, number=True)
    problem = found.problem or _problem(columns, query, document, title, text, settings.max_text_bytes)
    if problem is None:
        return ClickRow(normalized(query), query.strip(), document, title, text, clicks, impressions, position, cluster)
    reason, detail, field = problem
    names = [name for name in columns.model_dump().values() if name is not None]
    raw = show({name: values.get(name) for name in names}) if record.line is None else shorten(record.line)
    return BadRow(reason, detail, document or None, raw, field)


def _problem(
    columns: ClickColumns, query: str, document: str, title: str, text: str, limit: int
) -> tuple[str, str, str] | None:
    if not query:
        return "missing_field", f"column {columns.query} is absent or empty", columns.query
    if not _WORD.search(query):
        return "no_words", f"column {columns.query} holds no letter or digit", columns.query
    if not document:
        return "missing_id", "the id is absent or empty", columns.document
    if (control := control_character(document)) is not None:
        return "control_characters", f"the id holds {control}", columns.document
    if not is_visible(title) and not is_visible(text):
        names = " and ".join(name for name in (columns.title, columns.text) if name is not None)
        return "empty_text", f"{names} hold no visible character", columns.title or columns.text or ""
    for name, value in ((columns.query, query), (columns.title, title), (columns.text, text)):
        if name is not None and (size := len(value.encode())) > limit:
            return "text_too_long", f"column {name} has {size} bytes, click_set.max_text_bytes is {limit}", name
    return None


class _Values:
    """Reads columns of one record and remembers the first problem."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.problem: tuple[str, str, str] | None = None

    def text(self, name: str | None, *, number: bool = False) -> str:
        """Return a string, "" if it is null, absent or wrong; with ``number``, an integer becomes its decimal text."""
        if name is None:
            return ""
        value = self._values.get(name)
        if number and type(value) is int:
            return str(value)
        if number and isinstance(value, TypedValue) and _INTEGER_ID.fullmatch(value.shown):
            return value.shown
        text, problem = as_string(name, value)
        if problem is not None:
            self.problem = self.problem or (*problem, name)
        return text or ""

    def number(self, name: str | None, *, absent: int) -> int:
        """Return a whole number of at most 9 digits; ``absent`` if the log does not have the column."""
        if name is None:
            return absent
        value = self._values.get(name)
        shown = value.shown if isinstance(value, TypedValue) else value
        shown = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else shown
        found = None if isinstance(shown, bool) else _NUMBER.fullmatch(str(shown).strip())
        if found is None:
            detail = f"column {name} holds {shorten(str(shown))[:80]!r}, which is no whole number from 0 to 999999999"
            self.problem = self.problem or ("bad_number", detail, name)
            return absent
        return int(found[1])
