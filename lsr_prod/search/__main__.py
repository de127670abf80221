"""A prompt on an index: ``python -m lsr_prod.search INDEX``, or ``lsr-search INDEX``. Reads queries from a pipe too.

Shows what a query expanded to, the hits with score and overlap, and what each shared term contributed.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from lsr_prod.errors import LsrError, MissingExtraError, QueryError
from lsr_prod.search.result import Hit, SearchResult
from lsr_prod.search.searcher import Searcher

__all__ = ["main"]

_HELP = """\
Type a query, or
  :k N            hits to show
  :threshold X    share of the query's terms that a document must have, 0..1 (0: off)
  :qk N           terms of the query, heaviest first (0: all)
  :help           this text
  :quit           leave (end of input does too)
"""
_SHOWN_TERMS = 12
_SHOWN_TEXT = 160


@dataclass(frozen=True, slots=True)
class _Settings:
    k: int
    threshold: float
    qk: int | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the prompt until ``:quit`` or the end of input; returns the exit code."""
    parser = argparse.ArgumentParser(prog="lsr-search", description=__doc__, allow_abbrev=False)
    parser.add_argument("index", help="folder of an index")
    parser.add_argument("-k", type=int, default=5, help="hits to show (default: 5)")
    parser.add_argument("--threshold", type=float, default=0.0, help="overlap threshold, 0..1 (default: 0, off)")
    arguments = parser.parse_args(argv)
    settings = _Settings(arguments.k, arguments.threshold)
    try:
        searcher = Searcher.open(arguments.index)
        searcher.search_vector({}, k=settings.k, overlap_threshold=settings.threshold)  # are the settings possible?
        _say(_title(searcher))
        for line in _lines():
            if line in (":quit", ":q"):
                break
            settings = _answer(searcher, settings, line)
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except LsrError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def _answer(searcher: Searcher, settings: _Settings, line: str) -> _Settings:
    """Obey one line; returns the settings from here on."""
    try:
        if line.startswith(":"):
            return _command(searcher, settings, line)
        _show(searcher, settings, line)
    except QueryError as error:
        _say(f"! {error}")
    return settings


def _command(searcher: Searcher, settings: _Settings, line: str) -> _Settings:
    name, _, value = line[1:].partition(" ")
    changes: dict[str, Callable[[], _Settings]] = {
        "k": lambda: replace(settings, k=int(value)),
        "threshold": lambda: replace(settings, threshold=float(value)),
        "qk": lambda: replace(settings, qk=int(value) or None),
    }
    if name not in changes:
        _say(_HELP.rstrip())
        return settings
    try:
        changed = changes[name]()
    except ValueError:
        _say(f"! {value!r} is no number")
        return settings
    searcher.search_vector({}, k=changed.k, overlap_threshold=changed.threshold, qk=changed.qk)
    _say(f"k={changed.k} threshold={changed.threshold} qk={changed.qk or 'all'}")
    return changed


def _show(searcher: Searcher, settings: _Settings, text: str) -> None:
    fields = searcher.version.stored_fields
    result = searcher.search(
        text, settings.k, overlap_threshold=settings.threshold, qk=settings.qk, count=True, fields=fields
    )
    _say(_expansion(result))
    _say(
        f"{result.matched:,} of {searcher.documents:,} documents share at least {result.required} of them"
        f" · encode {result.encode_ms:.1f} ms · match {result.match_ms:.2f} ms"
    )
    for rank, hit in enumerate(result.hits, 1):
        _say(f"{rank:3}. {hit.score:8.3f}  {hit.doc_id}  ({hit.overlap}/{len(result.query)} terms)")
        _say(f"     {_contributions(searcher, settings, text, hit)}")
        if snippet := _snippet(hit):
            _say(f"     {snippet}")


def _expansion(result: SearchResult) -> str:
    shown = "  ".join(f"{term.term} {term.weight:.2f}" for term in result.query[:_SHOWN_TERMS])
    return f"{len(result.query)} terms: {shown}{_more(len(result.query))}"


def _contributions(searcher: Searcher, settings: _Settings, text: str, hit: Hit) -> str:
    parts = searcher.explain(text, hit.doc_id, qk=settings.qk).contributions
    heaviest = sorted(parts, key=lambda part: -part.score)[:_SHOWN_TERMS]
    return " + ".join(f"{part.term} {part.score:.2f}" for part in heaviest) + _more(len(parts))


def _more(count: int) -> str:
    return f"  … {count - _SHOWN_TERMS} more" if count > _SHOWN_TERMS else ""


def _snippet(hit: Hit) -> str:
    text = " · ".join(" ".join(value.split()) for value in hit.fields.values() if value)
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 1] + "…"


def _title(searcher: Searcher) -> str:
    publication = searcher.publication
    return (
        f"{searcher.documents:,} documents · publication {publication.number} · version {publication.version[:12]}"
        " · :help lists the commands"
    )


def _lines() -> Iterator[str]:
    """Lines that are not blank, with a prompt if a person types them."""
    if sys.stdin.isatty():
        import readline  # noqa: F401 - line editing for input()
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if line.strip():
            yield line.strip()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
