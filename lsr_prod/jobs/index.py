"""The commands of ``index`` that publish a version (build, takedown, restore, rollback) or compare two (canary)."""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lsr_prod import indexing
from lsr_prod.cluster.workers import Workers, require_shared_folders
from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import check_relevant, read_qrels
from lsr_prod.indexing.takedown import TakedownSummary
from lsr_prod.jobs.terminal import output, tables
from lsr_prod.jobs.terminal.shell import (
    Command,
    CommandParser,
    Job,
    add_store_option,
    local_path,
    location,
    scalars,
    store_options,
)
from lsr_prod.logs import without_credentials
from lsr_prod.operations.canary import CanarySettings, Judge, open_side, read_queries, run_canary
from lsr_prod.operations.gates import Gatekeeper, GateReport
from lsr_prod.operations.table_generations import follow_tables
from lsr_prod.storage import Store, folders

_MAX_K = 1_000  # hits per query that are compared
_SHOWN = 10  # queries and terms in a table of a comparison, and ids in a table of a takedown


def add_force_options(parser: CommandParser) -> None:
    """Add the options that overrule gates."""
    parser.add_argument(
        "--force", action="append", default=[], metavar="GATE", help="publish although this gate refuses; repeatable"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; recorded in the publication")


def gate_rows(reports: Sequence[GateReport]) -> list[dict[str, Any]]:
    """Return the results of the newest report, for the ``RESULT`` line."""
    return list(reports[-1].to_json()["results"]) if reports else []


def print_gates(reports: Sequence[GateReport]) -> None:
    """Print the results of the newest report, one row per gate that has a limit."""
    results = [result for result in reports[-1].results if result.verdict != "off"] if reports else []
    if results:
        rows = [[result.gate, result.verdict, result.sentence] for result in results]
        tables.print_columns("gates", ["gate", "verdict", "finding"], rows)


@partial(Job, "index build", needs=("index",), optional=("gates", "encode"), add_options=add_force_options, pages=True)
def build(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    """Build an index version from a sparse table and publish it.

        lsr-prod index build --config deployment.yaml [--index.shards 4] [--force GATE --reason TEXT]

    Reads the sections ``index``, ``gates``, ``encode``, ``ray`` and ``storage``. Finished shards are reused: an interrupted
    job is resumed by the same command, and a run without changes publishes nothing. A version that a gate refuses is kept,
    but not published; ``--force`` overrules a gate, which the publication records with the reason.

    Prints the gates, a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    deployment = follow_tables(deployment)
    gatekeeper = Gatekeeper(deployment, given.force, given.reason)
    try:
        summary = indexing.build_index(deployment, gatekeeper).result()
    finally:
        print_gates(gatekeeper.reports)
    return {**summary, "gates": gate_rows(gatekeeper.reports)}


@contextmanager
def _index_to_change(deployment: Deployment) -> Iterator[tuple[Store, Workers]]:
    """Yield the index, and workers for it."""
    settings = deployment.index
    assert settings is not None
    index = Store(folders.absolute(settings.output), deployment.storage.options)
    with Workers(deployment.ray, check=partial(require_shared_folders, {"index.output": settings.output})) as workers:
        yield index, workers


def _add_id_options(parser: CommandParser) -> None:
    parser.add_argument("--id", action="append", default=[], metavar="ID", help="id of a document; may be repeated")
    parser.add_argument("--file", type=local_path, metavar="FILE", help="text file with one id per line")
    parser.add_argument("--note", default="", metavar="TEXT", help="reason, kept in the publication")


def _read_ids(given: argparse.Namespace) -> list[str]:
    """Return the ids that ``_add_id_options`` names."""
    ids = [*given.id, *(_lines(given.file) if given.file else [])]
    if not ids:
        raise ConfigError("--id", "no document is named", "give --id, or --file with one id per line")
    return ids


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # an id may have other characters that end lines
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--file", f"{path} cannot be read ({error})", "give a text, an id per line") from error
    return [line for line in lines if line]


def _change(
    deployment: Deployment, given: argparse.Namespace, figure: str, change: Callable[..., TakedownSummary]
) -> Mapping[str, Any]:
    """Change the index for the given ids; ``figure`` is the name of the number of changed documents."""
    began = time.perf_counter()
    ids = _read_ids(given)
    with _index_to_change(deployment) as (index, workers):
        done = change(index, ids, given.note, workers=workers)
    unknown = done.unknown
    return {
        "ids": len(set(ids)),
        figure: done.changed,
        **({"unknown_ids": len(unknown), "first_unknown": ", ".join(unknown[:_SHOWN])} if unknown else {}),
        "documents": done.documents,
        "takedowns": done.takedowns,
        "version": done.publication.version,
        "publication": done.publication.number,
        "seconds": round(time.perf_counter() - began, 3),
    }


@partial(Job, "index takedown", needs=("index",), add_options=_add_id_options)
def takedown(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    """Hide documents of a published index until they are restored.

        lsr-prod index takedown --config deployment.yaml --id doc1 --id doc2 [--note "request 17"]
        lsr-prod index takedown --config deployment.yaml --file ids.txt

    Reads the sections ``index`` and ``storage``; ``ids.txt`` has one id per line. Nothing is built: a new version with
    tombstones is published, which readers see at their next refresh. Every later build hides the documents too, even if
    they are encoded again. Ids that no document has are hidden in later builds only; the log and the table name the first
    ten. ``lsr-prod index restore`` ends a takedown.

    Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    return _change(deployment, given, "documents_hidden", indexing.delete_documents)


@partial(Job, "index restore", needs=("index",), add_options=_add_id_options)
def restore(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    """End the takedown of documents of a published index.

        lsr-prod index restore --config deployment.yaml --id doc1 [--note "request 17 withdrawn"]
        lsr-prod index restore --config deployment.yaml --file ids.txt

    Reads the sections ``index`` and ``storage``; ``ids.txt`` has one id per line. Documents that the index's version of the
    table has are found again at once; the others return when a reindex finds them in the table.

    Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    restore_documents = partial(indexing.restore_documents, options=deployment.storage.options)
    return _change(deployment, given, "documents_restored", restore_documents)


def _add_rollback_options(parser: CommandParser) -> None:
    parser.add_argument("--to", type=int, metavar="NUMBER", help="number of the publication to return to")


@partial(Job, "index rollback", needs=("index",), add_options=_add_rollback_options)
def rollback(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    """Publish an earlier version of an index again, without documents that were taken down since.

        lsr-prod index rollback --config deployment.yaml --to 41

    Reads the sections ``index`` and ``storage``. The version of publication 41 becomes current as a new publication;
    takedowns stay in force.

    Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    began = time.perf_counter()
    if given.to is None:
        raise ConfigError("--to", "no publication is named", "give the number of an earlier publication")
    with _index_to_change(deployment) as (index, workers):
        publication = indexing.rollback(index, given.to, workers)
    return {
        "from_publication": given.to,
        "version": publication.version,
        "publication": publication.number,
        "seconds": round(time.perf_counter() - began, 3),
    }


def add_sides(parser: CommandParser, *, required: bool) -> None:
    """Add the options that ``compare_sides`` reads."""
    side = "folder or URI of an index, with @NUMBER at a publication: the side"
    parser.add_argument("--a", required=required, type=location, metavar="INDEX", help=f"{side} in use")
    parser.add_argument("--b", required=required, type=location, metavar="INDEX", help=f"{side} that may replace it")
    parser.add_argument("--queries", required=required, type=location, metavar="FILE", help="queries, file or URI")
    parser.add_argument("--qrels", type=location, metavar="FILE", help="relevance judgments, file or URI")
    parser.add_argument("--measure", metavar="NAME", help="measure, as named by ir_measures (default: nDCG@k)")
    parser.add_argument("--k", type=int, default=10, metavar="N", help="hits per query to compare (default: 10)")
    parser.add_argument(
        "--threshold", type=float, default=0.0, metavar="X", help="overlap threshold, 0..1 (default: 0, off)"
    )
    parser.add_argument(
        "--rows", type=int, default=1_000, metavar="N", help="queries to keep, those that changed most (default: 1000)"
    )


def compare_sides(given: argparse.Namespace) -> dict[str, Any]:
    """Run the comparison that the options of ``add_sides`` name; return the content of ``canary.json``."""
    _check_sides(given)
    options = store_options(given)
    for name in ("queries", "qrels"):
        place = getattr(given, name)
        if place is not None and not folders.file_exists(place, options):
            problem = f"there is no file at {without_credentials(place)}"
            raise ConfigError(f"--{name}", problem, "give a path or URI that exists")
    judged = [] if given.qrels is None else list(read_qrels(given.qrels, options))
    # Built before an index is opened, since it validates the measure.
    judge = None if given.qrels is None else Judge(given.measure or f"nDCG@{given.k}", judged)
    if judge is not None and judge.depth > given.k:
        raise ConfigError("--k", f"{given.k} hits are too few for {judge.measure}", "raise it, or change --measure")
    settings = CanarySettings(k=given.k, threshold=given.threshold, count=True, rows=given.rows)
    names = (without_credentials(given.a), without_credentials(given.b))
    with open_side(given.a, options) as a, open_side(given.b, options) as b:
        if judge is not None:
            check_relevant(judged, given.qrels, a.snapshot.place, b.snapshot.place)
        return run_canary(a, b, read_queries(given.queries, options), settings, names=names, judge=judge).result()


def _check_sides(given: argparse.Namespace) -> None:
    if not 1 <= given.k <= _MAX_K:
        raise ConfigError("--k", f"{given.k} is not possible", f"give an integer from 1 to {_MAX_K:,}")
    if not 0 <= given.threshold <= 1:
        raise ConfigError("--threshold", f"{given.threshold:g} is not possible", "give a share of the terms, 0..1")
    if given.rows < 1:
        raise ConfigError("--rows", f"{given.rows} is not possible", "give an integer, 1 or more")
    if given.measure and given.qrels is None:
        raise ConfigError("--measure", "there are no judgments", "give --qrels FILE, or leave --measure out")


def _add_canary_options(parser: CommandParser) -> None:
    add_sides(parser, required=True)
    add_store_option(parser)
    parser.add_argument("--output", type=location, metavar="DIR", help="folder or URI for canary.json")


@partial(Command, "index canary", add_options=_add_canary_options)
def canary(given: argparse.Namespace) -> None:
    """Compare two indexes, or two versions of one, on the same queries.

        lsr-prod index canary --a INDEX@41 --b INDEX --queries FILE [--qrels FILE] [--k 10] [--output DIR]

    A is the side in use, B the side that may replace it: folders or URIs of indexes, with ``@NUMBER`` at an earlier
    publication, else at the current one. Queries and judgments have the formats of ``evaluate``. Writes ``canary.json``
    if ``--output`` names a folder, which ``lsr-prod inspect side-by-side`` shows.

    Prints tables and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad usage (nothing was written).
    """
    if given.output is not None and Path(given.output).is_file():
        raise ConfigError("--output", f"{given.output} is a file", "give a folder")
    output.log_to_stderr()
    found = compare_sides(given)
    _print_canary(found)
    summary = {**scalars(found), "sides": found["sides"]}
    if given.output is not None:
        place = f"{given.output.rstrip('/')}/canary.json"
        folders.store_file(place, json.dumps(found, ensure_ascii=False, allow_nan=False).encode(), store_options(given))
        summary["output"] = place
    output.print_result(summary)


def _print_canary(found: Mapping[str, Any]) -> None:
    tables.print_table("lsr-prod index canary", scalars(found))
    a, b = found["sides"]["a"], found["sides"]["b"]
    tables.print_columns("sides", ("", "a", "b"), [[name, a[name], b[name]] for name in a])
    rows = [
        [row["query_id"], row["text"], *(row[name] for name in ("overlap", "rbo", "entered", "left")),
         row["value_a"], row["value_b"]]
        for row in found["rows"][:_SHOWN]
        if row["change"] > 0
    ]  # fmt: skip
    if rows:
        heads = ("query", "text", "overlap", "rbo", "entered", "left", "value a", "value b")
        tables.print_columns("queries that changed most", heads, rows)
    if terms := found["terms"][:_SHOWN]:
        drifts = [[each["term"], each["weight_a"], each["weight_b"], each["drift"]] for each in terms]
        tables.print_columns("query terms that drifted most", ("term", "weight a", "weight b", "drift"), drifts)
