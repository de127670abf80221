"""Queries in the topics of TREC: the SGML form with ``<top>`` and ``<num>``, and the XML form with ``<topic number>``.

Topics are read as tagged text, not by a parser of XML: nothing is expanded but references to characters.
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.rows import numbered_lines

_STARTS = ("<top", "<?xml", "<!--", "<!doctype")
_DECLARATION = re.compile(r"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)
_TOPIC = re.compile(r"<top(?:ic)?(\s[^<>]*)?>", re.IGNORECASE)
_END = re.compile(r"</top(?:ic)?\s*>", re.IGNORECASE)
_ID = re.compile(r"""(?:number|num|id|qid)\s*=\s*["']([^"']*)["']""", re.IGNORECASE)
_LABEL = re.compile(r"\A(?:number|topic|title)\s*:\s*", re.IGNORECASE)
_ADVICE = "each topic needs <num> or the attribute number, and <title> or <query>"


def is_topics(place: str, options: Mapping[str, str] | None = None) -> bool:
    """Return whether a file begins as topics do."""
    _, line = next(numbered_lines(place, options), (0, ""))
    return line.lstrip().lower().startswith(_STARTS)


def read_topics(place: str, options: Mapping[str, str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield place, id and text of every topic: of its title, or of its query if it has no title."""
    numbers, texts = zip(*numbered_lines(place, options), strict=True)
    text = "\n".join(texts)
    if _DECLARATION.search(text):
        raise SourceError(f"{place} declares a document type or an entity, which is not read; remove the declaration")
    text = _replace(text, "<!--", "-->", lambda comment: "\n" * comment.count("\n"))
    text = _replace(text, "<![CDATA[", "]]>", html.escape)
    before, *pieces = _TOPIC.split(text)  # text before the first topic; then attributes and content of every topic
    line = before.count("\n")
    for attributes, content in zip(pieces[::2], pieces[1::2], strict=True):
        where = f"{place}:{numbers[line]}"
        body, *rest = _END.split(content, maxsplit=1)
        if not rest:
            raise SourceError(f"{where} begins a topic that does not end; close it with </top> or </topic>")
        found = _ID.search(attributes or "")
        topic_id = html.unescape(found[1]).strip() if found else _content(body, "num", "number", "id", "qid")
        query = _content(body, "title", "query") or ("" if "<" in body else _plain(body))
        if not topic_id or not query:
            raise SourceError(f"{where} is a topic without {'text' if topic_id else 'an id'}; {_ADVICE}")
        yield where, topic_id, query
        line += (attributes or "").count("\n") + content.count("\n")


def _replace(text: str, begin: str, end: str, by: Callable[[str], str]) -> str:
    """Replace every section between two marks; a regular expression would need quadratic time for unclosed ones."""
    first, *sections = text.split(begin)
    split = [section.partition(end) for section in sections]
    return first + "".join(by(inside) + rest if closed else begin + inside for inside, closed, rest in split)


def _content(body: str, *tags: str) -> str:
    """Return the text after the first of some tags that has one; elements of the SGML form are not closed."""
    found = (re.search(rf"<{tag}(?:\s[^<>]*)?>([^<]*)", body, re.IGNORECASE) for tag in tags)
    return next((text for match in found if match and (text := _plain(match[1]))), "")


def _plain(text: str) -> str:
    return " ".join(_LABEL.sub("", html.unescape(text).strip()).split())
