"""The commands ``search`` and ``index warm``: queries of an index that the core wheel can run."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from lsr_prod.errors import QueryError
from lsr_prod.jobs.terminal import output, shell
from lsr_prod.search.query import query_text, search_request
from lsr_prod.search.search_result import Contribution, Hit, QueryTerm, SearchResult
from lsr_prod.search.searcher import Searcher

_HELP = """\
Type a query, or
  :k N            number of hits to show
  :threshold X    share of the query's terms that a document must have, 0..1 (0: off)
  :qk N           terms of the query, heaviest first (0: all)
  :words X        weight of the BM25 score in a hybrid search (0: the encoder's terms only)
  :filter WORDS   only documents whose text has all of these words (nothing: off)
  :help           print this text
  :quit           leave (so does the end of input)
"""
_SHOWN_TERMS = 12
_SHOWN_TEXT = 160


@dataclass(frozen=True, slots=True)
class _Settings:
    k: int
    threshold: float
    qk: int | None = None
    words: float = 0.0
    filter: str = ""

    @property
    def hybrid(self) -> search_request.Hybrid | None:
        """Weights of a hybrid search; None: the encoder's terms only."""
        return search_request.Hybrid(words=self.words) if self.words else None

    @property
    def options(self) -> search_request.Options:
        """The settings as options of a search."""
        required = query_text.words_query(self.filter) if self.filter else None
        return {"overlap_threshold": self.threshold, "qk": self.qk, "hybrid": self.hybrid, "filter": required}


@dataclass(frozen=True, slots=True)
class Warmth:
    """Durations of a process's start."""

    open_ms: float  # milliseconds to open the index
    first_ms: float  # milliseconds of the first query and its rescoring, which read its pages from disk
    next_ms: float  # milliseconds of the same query afterwards


def _add_search_options(parser: shell.CommandParser) -> None:
    parser.add_argument("index", metavar="INDEX", type=shell.location, help="folder or URI of an index")
    shell.add_store_option(parser)
    parser.add_argument("-k", type=int, default=5, metavar="N", help="number of hits to show (default: 5)")
    parser.add_argument(
        "--threshold", type=float, default=0.0, metavar="X", help="overlap threshold, 0..1 (default: 0, off)"
    )
    parser.add_argument(
        "--words",
        type=float,
        default=0.0,
        metavar="X",
        help="weight of the BM25 score in a hybrid search; the index needs index.bm25 (default: 0, off)",
    )
    parser.add_argument("--filter", default="", metavar="WORDS", help="only documents that have all of these words")


@partial(shell.Command, "search", add_options=_add_search_options)
def search(given: argparse.Namespace) -> None:
    """Search an index from a prompt, or with queries from a pipe.

        lsr-prod search INDEX [-k 10] [--threshold 0.4] [--words 1] [--filter "usb-c"]
        lsr-prod search INDEX < queries.txt

    Prints the expansion of each query, its hits with score and overlap, and the contribution of each shared term.
    With ``--words``, hits are those of a hybrid search: words of the text are shown in quotes.
    Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    settings = _Settings(given.k, given.threshold, words=given.words, filter=given.filter)
    searcher = Searcher.open(given.index, storage_options=shell.store_options(given))
    _check(searcher, settings)
    output.say(_title(searcher))
    for line in _lines():
        if line in (":quit", ":q") or output.lost_output() is not None:
            break
        settings = _answer(searcher, settings, line)


def _title(searcher: Searcher) -> str:
    publication = searcher.publication
    return (
        f"{searcher.documents:,} documents · publication {publication.number} · version {publication.version[:12]}"
        " · :help lists commands"
    )


def _lines() -> Iterator[str]:
    """Yield the lines that are not blank; a terminal gets a prompt."""
    if sys.stdin.isatty():
        import readline  # noqa: F401 - line editing for input()
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if line.strip():
            yield line.strip()


def _answer(searcher: Searcher, settings: _Settings, line: str) -> _Settings:
    """Run one line; returns the settings for the lines after it."""
    try:
        if line.startswith(":"):
            return _command(searcher, settings, line)
        _show(searcher, settings, line)
    except QueryError as error:
        output.say(f"! {error}")
    return settings


def _command(searcher: Searcher, settings: _Settings, line: str) -> _Settings:
    name, _, value = line[1:].partition(" ")
    changes: dict[str, Callable[[], _Settings]] = {
        "k": lambda: replace(settings, k=int(value)),
        "threshold": lambda: replace(settings, threshold=float(value)),
        "qk": lambda: replace(settings, qk=int(value) or None),
        "words": lambda: replace(settings, words=float(value)),
        "filter": lambda: replace(settings, filter=value.strip()),
    }
    if name not in changes:
        output.say(_HELP.rstrip(), lines=True)
        return settings
    try:
        changed = changes[name]()
    except ValueError:
        output.say(f"! {value!r} is not a number")
        return settings
    _check(searcher, changed)
    shown = f" filter={changed.filter!r}" if changed.filter else ""
    output.say(f"k={changed.k} threshold={changed.threshold} qk={changed.qk or 'all'} words={changed.words}{shown}")
    return changed


def _check(searcher: Searcher, settings: _Settings) -> None:
    """Raise QueryError for settings that are impossible, or that the index cannot answer."""
    searcher.search_vector({}, settings.k, text=None if settings.hybrid is None else "", **settings.options)


def _show(searcher: Searcher, settings: _Settings, text: str) -> None:
    fields = searcher.version.stored_fields
    options: search_request.Options = {**settings.options, "count": True, "fields": fields}
    result = searcher.search(text, settings.k, **options)
    output.say(_expansion(result, settings))
    output.say(
        f"{result.matched:,} of {searcher.documents:,} documents share at least {result.required} of them"
        f" · encode {result.encode_ms:.1f} ms · match {result.match_ms:.2f} ms"
    )
    for rank, hit in enumerate(result.hits, 1):
        output.say(f"{rank:3}. {hit.score:8.3f}  {hit.doc_id}  ({hit.overlap}/{len(result.query)} {_kinds(settings)})")
        output.say(f"     {_contributions(searcher, settings, text, hit)}")
        if snippet := _snippet(hit):
            output.say(f"     {snippet}")


def _kinds(settings: _Settings) -> str:
    return "terms" if settings.hybrid is None else "terms and words"


def _expansion(result: SearchResult, settings: _Settings) -> str:
    shown = "  ".join(f"{_named(term)} {term.weight:.2f}" for term in result.query[:_SHOWN_TERMS])
    return f"{len(result.query)} {_kinds(settings)}: {shown}{_more(len(result.query))}"


def _named(term: QueryTerm | Contribution) -> str:
    """Return a term as it is, and a word of the text in quotes."""
    return term.term if term.field == "terms" else f'"{term.term}"'


def _contributions(searcher: Searcher, settings: _Settings, text: str, hit: Hit) -> str:
    parts = searcher.explain(text, hit.doc_id, qk=settings.qk, hybrid=settings.hybrid).contributions
    heaviest = sorted(parts, key=lambda part: -part.score)[:_SHOWN_TERMS]
    return " + ".join(f"{_named(part)} {part.score:.2f}" for part in heaviest) + _more(len(parts))


def _more(count: int) -> str:
    return f"  … {count - _SHOWN_TERMS} more" if count > _SHOWN_TERMS else ""


def _snippet(hit: Hit) -> str:
    text = " · ".join(" ".join(str(value).split()) for value in hit.fields.values() if value not in (None, ""))
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 1] + "…"


def _add_warm_options(parser: shell.CommandParser) -> None:
    parser.add_argument("index", metavar="INDEX", type=shell.location, help="folder or URI of an index")
    shell.add_store_option(parser)


@partial(shell.Command, "index warm", add_options=_add_warm_options, output_required=False)
def warm(given: argparse.Namespace) -> None:
    """Open an index and run its first query, for example before a new searcher gets traffic.

        lsr-prod index warm INDEX

    Reads what every query reads into memory, and prints the time that a cold start takes. Exit codes: 0 done, 1 failed, 2
    bad usage.
    """
    found = measure_start(given.index, shell.store_options(given))
    output.say(
        f"open {found.open_ms:.1f} ms · first queries {found.first_ms:.1f} ms · "
        f"same queries again {found.next_ms:.2f} ms"
    )


def measure_start(index: str, storage_options: Mapping[str, str] | None = None) -> Warmth:
    """Open an index and run a query that uses every kernel."""
    start = time.perf_counter()
    searcher = Searcher.open(index, storage_options=storage_options)
    opened = time.perf_counter()
    _run_query(searcher)
    queried = time.perf_counter()
    _run_query(searcher)
    return Warmth((opened - start) * 1e3, (queried - opened) * 1e3, (time.perf_counter() - queried) * 1e3)


def _run_query(searcher: Searcher) -> None:
    for required in (1, 2):
        searcher.search_vector({0: 1.0, 1: 1.0}, 1, min_terms=required, rescore=1)
