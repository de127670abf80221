"""The commands ``inspect`` that write a report page: of an index, a query, a run, an evaluation, a canary, a sweep."""

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import Any

from jinja2 import TemplateError

from lsr_prod.errors import ConfigError, QueryError, SourceError
from lsr_prod.evaluation.collection import read_queries
from lsr_prod.extras import contrib
from lsr_prod.jobs.terminal.output import print_result, say
from lsr_prod.jobs.terminal.shell import (
    Command,
    CommandParser,
    add_fields_option,
    add_store_option,
    local_path,
    location,
    store_options,
)
from lsr_prod.search.query.search_request import Hybrid
from lsr_prod.search.searcher import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute, open_text
from lsr_prod_contrib.pages import Page, write_page
from lsr_prod_contrib.pages.evaluation import evaluation_page
from lsr_prod_contrib.pages.index import index_page
from lsr_prod_contrib.pages.query import query_data, query_page
from lsr_prod_contrib.pages.side_by_side import KEYS, side_by_side_page
from lsr_prod_contrib.pages.sweep import sweep_page

_QUERIES = 200  # whose postings are counted
_RUN_OPTIONS = {"model": "training", "plan": "encode", "cluster": "encode"}  # option -> kind of run that has it
_RECORDS = (
    ("_lsr_prod", "encode"),
    ("publications", "index"),
    ("builds", "index"),
    ("stages", "training"),
    ("runs", "training"),  # of a chain that has not finished a stage
)  # folder -> kind of run that has it


def _add_output(parser: CommandParser) -> None:
    """Add the options of all kinds of pages."""
    parser.add_argument(
        "--output", metavar="DIR", type=location, default=".", help="folder or URI for the page (default: this folder)"
    )
    add_store_option(parser)


def _read_result(given: argparse.Namespace, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the JSON object of ``given.file``, or of the last line ``RESULT {json}`` of a job's output."""
    with open_text(given.file, store_options(given)) as file:
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise SourceError(f"{given.file} is not UTF-8 ({error}); give a JSON file") from error
    results = [line for line in text.splitlines() if line.startswith("RESULT {")]
    try:
        result = json.loads(results[-1].removeprefix("RESULT ") if results else text)
    except (ValueError, RecursionError) as error:
        raise ConfigError("FILE", f"{given.file} is not JSON ({error})", "give the file that the job wrote") from error
    absent = [key for key in keys if not isinstance(result, dict) or key not in result]
    if absent:
        problem = f"{given.file} has no {', '.join(absent)}"
        raise ConfigError("FILE", problem, f"give a JSON object with {', '.join(keys)}")
    return dict(result)


@contextmanager
def _page_of_file(given: argparse.Namespace) -> Iterator[None]:
    """Turn the errors of making a page of ``given.file`` into one that names the file; other errors stay."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, TemplateError) as error:
        problem = f"{given.file} has another form than the result of this release ({type(error).__name__}: {error})"
        raise ConfigError("FILE", problem, "give an unchanged file that this release of lsr_prod wrote") from error


def _save(given: argparse.Namespace, page: Page, facts: Mapping[str, Any] | None = None) -> None:
    """Write the page, print where, and print the line for machines."""
    html, data = write_page(given.output, page, store_options(given))
    for line in (page.title, f"  page  {html}", f"  JSON  {data}"):
        say(line)
    print_result({"page": html, "json": data, **(facts or {})})


def _add_index_options(parser: CommandParser) -> None:
    _add_output(parser)
    parser.add_argument("index", metavar="INDEX", type=location, help="folder or URI of an index")
    parser.add_argument("--sample", type=int, default=2000, metavar="N", help="documents to read (default: 2000)")
    add_fields_option(parser)
    parser.add_argument("--queries", metavar="FILE", type=location, help="queries, file or URI")


@partial(Command, "inspect index", add_options=_add_index_options, output_required=False)
def index(given: argparse.Namespace) -> None:
    """Write the page of an index: what it consists of, and what its terms say about the model.

        lsr-prod inspect index INDEX [--sample 2000] [--fields title text] [--queries queries.jsonl] [--output DIR]

    INDEX is the folder or URI of ``index.output``. The page has bytes by part, shards, the lengths of the postings lists,
    the postings that a query reads, dead, expanded and unexplained terms, lineage and publications. Texts of a sample
    are read if the index stores them. The postings of ``--queries`` are counted (formats of ``evaluate``, at most 200;
    needs ONNX Runtime), else those of queries made of the heaviest terms of documents. Needs the extra ``pages``.

    Prints the place of the page, and a line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    if given.sample < 1:
        raise ConfigError("--sample", f"{given.sample} is no number of documents", "give 1 or more")
    options = store_options(given)
    queries = [text for _, text in islice(read_queries(given.queries, options), _QUERIES)] if given.queries else []
    describe_index = contrib("diagnostics.index_report").describe_index
    found = describe_index(absolute(given.index), options, sample=given.sample, fields=given.fields, queries=queries)
    _save(given, index_page(found), {"documents": found["documents"], "publication": found["publication"]})


def _add_query_options(parser: CommandParser) -> None:
    _add_output(parser)
    parser.add_argument("index", metavar="INDEX", type=location, help="folder or URI of an index")
    parser.add_argument("text", metavar="TEXT", help="the query")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="number of hits, 1 to 100 (default: 10)")
    parser.add_argument("--qk", type=int, metavar="N", help="query terms, heaviest first (default: all)")
    parser.add_argument("--hybrid", action="store_true", help="rank by terms and words")
    parser.add_argument("--words", type=float, metavar="X", help="rank by terms and words of this weight (default: 1)")


@partial(Command, "inspect query", add_options=_add_query_options, output_required=False)
def query(given: argparse.Namespace) -> None:
    """Write the page of one query: expansion, hits, and what each term adds to each hit.

        lsr-prod inspect query INDEX "text of the query" [-k 10] [--hybrid] [--words 0.5] [--output DIR]

    A slider in the page shows which hits drop out if more query terms must be shared. If the index was built with
    ``index.bm25``, the page also has the ranks and scores of BM25 and of the hybrid search; with ``--hybrid`` the hits are
    those of the hybrid search.

    Prints the place of the page, and a line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    if not 1 <= given.k <= 100:
        raise ConfigError("-k", f"{given.k} is not possible", "give an integer from 1 to 100")
    if given.qk is not None and given.qk < 1:
        raise ConfigError("--qk", f"{given.qk} is not possible", "give an integer above 0")
    hybrid = _hybrid(1.0 if given.words is None else given.words) if given.hybrid or given.words is not None else None
    with Searcher.open(given.index, storage_options=store_options(given)) as searcher:
        data = query_data(searcher, given.text, k=given.k, qk=given.qk, hybrid=hybrid)
    _save(given, query_page(data), {"hits": len(data["hits"]), "terms": len(data["terms"])})


def _hybrid(words: float) -> Hybrid:
    try:
        return Hybrid(words=words)
    except QueryError as error:
        raise ConfigError("--words", f"{words:g} is not possible", str(error).rpartition("; ")[2]) from error


def _add_run_options(parser: CommandParser) -> None:
    _add_output(parser)
    parser.add_argument("place", metavar="PLACE", type=location, help="folder or URI: train.work, a table, or an index")
    parser.add_argument("--model", metavar="DIGEST", help="training: 8 or more digits of the digest of a model")
    parser.add_argument("--plan", metavar="DIGEST", help="encode: 8 or more digits of the digest of a plan")
    parser.add_argument(
        "--cluster",
        metavar="FILE",
        type=local_path,
        help="encode: YAML file with prices, as for lsr-prod table estimate",
    )


@partial(Command, "inspect run", add_options=_add_run_options, output_required=False)
def run(given: argparse.Namespace) -> None:
    """Write the page of a run of train, encode or index, from the records in the store of its artifact.

        lsr-prod inspect run WORK [--model DIGEST] [--output DIR]
        lsr-prod inspect run TABLE [--plan DIGEST] [--cluster cluster.yaml] [--output DIR]
        lsr-prod inspect run INDEX [--output DIR]

    WORK is the folder or URI of ``train.work``, TABLE that of ``encode.table``, INDEX that of ``index.output``. The page
    may be written while the job runs. Training: loss, active terms, validation and throughput of every stage that led to
    the model that was finished last (or to ``--model``), and of an unfinished stage that reported later. Encode: waves,
    rates, idle share of the encoders, quarantined rows by reason and cost of the newest plan. Index: shards, bytes, seconds
    and gates of the last build, and the builds before. Only records are read. Needs the extra ``pages``.

    Prints the place of the page, and a line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    store = Store(absolute(given.place), store_options(given))
    kind = _kind(store)
    for name, wanted in _RUN_OPTIONS.items():
        if getattr(given, name) is not None and kind != wanted:
            raise ConfigError(f"--{name}", f"{store.uri} holds records of {kind}, not of {wanted}", "leave it out")
    _save(given, _run_page(kind, store, given), {"kind": kind})


def _kind(store: Store) -> str:
    """Return what a folder holds records of; each kind of artifact has a folder that no other one has."""
    for folder, kind in _RECORDS:
        if store.names(folder):
            return kind
    raise ConfigError(
        "PLACE", f"{store.uri} holds no records of a run", "give train.work, encode.table or index.output"
    )


def _run_page(kind: str, store: Store, given: argparse.Namespace) -> Page:
    if kind == "training":
        from lsr_prod_contrib.pages.runs.training import describe_training
        from lsr_prod_contrib.pages.training_run import training_page

        return training_page(describe_training(store, given.model))
    if kind == "encode":
        from lsr_prod_contrib.pages.encode_run import encode_page
        from lsr_prod_contrib.pages.runs.encoding import describe_encoding

        cluster = None if given.cluster is None else contrib("estimates.cluster").load_cluster(given.cluster)
        return encode_page(describe_encoding(store, given.plan, cluster))
    from lsr_prod_contrib.pages.encode_run import builds_page
    from lsr_prod_contrib.pages.runs.encoding import describe_builds

    return builds_page(describe_builds(store))


def _add_evaluation_options(parser: CommandParser) -> None:
    _add_output(parser)
    parser.add_argument("file", metavar="FILE", type=location, help="result of an evaluation, a path or a URI")
    parser.add_argument("--measure", metavar="NAME", help="measure of the order and of the charts (default: the first)")


@partial(Command, "inspect evaluation", add_options=_add_evaluation_options, output_required=False)
def evaluation(given: argparse.Namespace) -> None:
    """Write the page of an evaluation: systems, comparisons with the baseline, queries, and cost of the index.

        lsr-prod inspect evaluation FILE.json [--measure nDCG@10] [--output DIR]

    FILE is the ``evaluation.json`` that ``lsr-prod evaluate`` writes into ``evaluate.output``; a path or a URI.
    Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    result = _read_result(given, ("index", "systems", "comparisons", "query_ids", "query_texts", "efficiency"))
    with _page_of_file(given):
        _save(given, evaluation_page(result, measure=given.measure))


def _add_side_by_side_options(parser: CommandParser) -> None:
    from lsr_prod.jobs.index import add_sides

    _add_output(parser)
    parser.add_argument("file", metavar="FILE", nargs="?", type=location, help="canary.json, a path or a URI")
    add_sides(parser, required=False)


@partial(Command, "inspect side-by-side", add_options=_add_side_by_side_options, output_required=False)
def side_by_side(given: argparse.Namespace) -> None:
    """Write the page of two versions or models: queries by change, ranks side by side, terms that drifted.

        lsr-prod inspect side-by-side CANARY.json [--output DIR]
        lsr-prod inspect side-by-side --a INDEX@41 --b INDEX --queries FILE [--qrels FILE] [--k 10] [--output DIR]

    CANARY.json is the ``canary.json`` of ``lsr-prod index canary``, a path or a URI; with ``--a``, ``--b`` and
    ``--queries`` the comparison runs first. The page shows the 200 queries that changed most, with a filter and an order.

    Prints the place of the page, and a line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    sides = (given.a, given.b, given.queries)
    if given.file is not None and any(sides):
        raise ConfigError("command line", "FILE and --a, --b or --queries are given", "give one or the other")
    if given.file is None and not all(sides):
        raise ConfigError("command line", "there is nothing to compare", "give FILE, or --a, --b and --queries")
    from lsr_prod.jobs.index import compare_sides

    result = compare_sides(given) if given.file is None else _read_result(given, KEYS)
    with nullcontext() if given.file is None else _page_of_file(given):
        _save(given, side_by_side_page(result), {key: result[key] for key in ("queries", "overlap", "wins", "losses")})


def _add_sweep_options(parser: CommandParser) -> None:
    _add_output(parser)
    parser.add_argument("file", metavar="FILE", type=location, help="result of a sweep, a path or a URI")


@partial(Command, "inspect sweep", add_options=_add_sweep_options, output_required=False)
def sweep(given: argparse.Namespace) -> None:
    """Write the page of a sweep: quality against cost, Pareto fronts, and the chosen setting.

        lsr-prod inspect sweep FILE.json [--output DIR]

    FILE is the result that ``lsr-prod sweep`` writes; a path or a URI. Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    result = _read_result(given, ("measure", "costs", "points", "fronts", "chosen"))
    with _page_of_file(given):
        _save(given, sweep_page(result))
