"""The commands on a sparse table: ``table status``, ``verify``, ``quarantine`` and ``maintain``."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lsr_prod import errors, logs
from lsr_prod.jobs.terminal.output import log_to_stderr, print_json, print_result, say
from lsr_prod.jobs.terminal.shell import (
    Command,
    CommandParser,
    Job,
    add_place,
    add_store_option,
    deployment_of,
    location,
    scalars,
    store_options,
)

if TYPE_CHECKING:
    from lsr_prod.config import Deployment
    from lsr_prod.operations.audit import Audit
    from lsr_prod.operations.status import PlanStatus, TableStatus

_ROWS = 20  # of a quarantine that are shown by default
_SHOWN = 100  # characters of a text in a cell of the table of a quarantine


def _print_status(status: "TableStatus") -> None:
    """Print the table, its plans, and a sentence about the plan that is not finished."""
    from lsr_prod.jobs.terminal.tables import print_columns, print_table

    facts = {"table": status.table, "documents": status.documents, "version": status.version}
    print_table("sparse table", {**facts, "committed": _ago(status.committed_at)})
    headings = ("plan", "kind", "waves", "state", "attempt", "host", "process", "since", "last activity")
    print_columns("plans, oldest first", headings, [_plan_row(plan) for plan in status.plans])
    for plan in status.plans:
        if (sentence := _sentence(plan)) is not None:
            say(sentence)


def _plan_row(plan: "PlanStatus") -> list[Any]:
    waves = "unknown" if plan.waves is None else f"{plan.waves_done} of {plan.waves}"
    who = [plan.attempt, plan.host or "", plan.pid and str(plan.pid), plan.started_at or ""]
    return [plan.plan[:12], plan.kind, waves, plan.state, *who, _ago(plan.last_activity)]


def _sentence(plan: "PlanStatus") -> str | None:
    name = f"Plan {plan.plan[:12]}"
    if plan.state == "unreadable":
        return f"{name} has no record that this release can read: another release wrote it, or it was deleted."
    if plan.state == "not started":
        return f"{name} was saved, but no attempt at it has begun; lsr-prod encode starts it."
    if plan.state not in ("running", "silent", "ended"):
        return None
    cells = "" if plan.cells is None else f", {plan.cells_done:,} of {plan.cells:,} cells of the next wave are finished"
    far = f"{plan.waves_done} of {plan.waves} waves are committed{cells}"
    where = f"process {plan.pid} on {plan.host or ''}"
    if plan.state == "running":
        return f"{name} is encoded by {where}: {far}; last activity {_ago(plan.last_activity)}."
    why = "does not exist any more"
    if plan.state == "silent":
        why = f"has finished no cell for {_duration(time.time() - (plan.last_activity or 0.0))}"
    return f"{name} is not finished: {far}; {where} {why}. The same lsr-prod encode command resumes it."


def _ago(moment: float | None) -> str | None:
    return None if moment is None else f"{_duration(max(time.time() - moment, 0.0))} ago"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _add_status_options(parser: CommandParser) -> None:
    add_place(parser, "TABLE", "folder or URI of a sparse table")
    parser.add_argument("--index", metavar="INDEX", type=location, help="folder or URI of an index")
    parser.add_argument("--digest", action="store_true", help="compute the digest of the contents")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


@partial(Command, "table status", add_options=_add_status_options)
def status(given: argparse.Namespace) -> None:
    """Say how far a sparse table is: its plans, their committed waves, and who works on them.

        lsr-prod table status TABLE [--index INDEX] [--digest] [--json]
        lsr-prod table status --config deployment.yaml [--json]

    TABLE is the folder or URI of ``encode.table``. It may be asked while a job runs, on any machine that reaches the table:
    only records next to the table are read. A plan that is ``ended`` or ``silent`` is resumed by the same ``lsr-prod
    encode`` command; ``silent`` says that no cell was finished for ten minutes. With a deployment, or with ``--index``, the
    current publication of the index is shown too. ``--digest`` adds the digest of the contents, equal for equal documents
    and vectors; it reads all parts that have deleted rows.

    Prints tables, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    table, index, options = _places(given)
    from lsr_prod.encoding import table_digest
    from lsr_prod.operations.status import published_version, table_status
    from lsr_prod.storage import Store

    found = table_status(Store(table, options))
    digest = {"digest": table_digest(table, options)} if given.digest else {}
    published = None if index is None else published_version(Store(index, options))
    if given.json:
        print_json({**found.result(), **digest, "publication": published})
        return
    _print_status(found)
    if digest:
        say(f"The digest of the contents is {digest['digest']}.")
    if index is not None:
        from lsr_prod.jobs.terminal.tables import print_table

        print_table("index", {"index": index, **({"publication": "none"} if published is None else published)})


def _places(given: argparse.Namespace) -> tuple[str, str | None, dict[str, str]]:
    """Return the table, the index, and options of their stores."""
    deployment, options = _followed(given, "table status", "TABLE")
    if deployment is None:
        return given.table, given.index, options
    from lsr_prod.storage.folders import absolute

    encode, index = deployment.encode, deployment.index
    assert encode is not None
    return absolute(encode.table), given.index or (None if index is None else absolute(index.output)), options


def _followed(given: argparse.Namespace, name: str, metavar: str) -> tuple["Deployment | None", dict[str, str]]:
    """Return the deployment with the table in use, None without ``--config``; and options of stores."""
    deployment, options = deployment_of(given, name, metavar, "encode"), store_options(given)
    if deployment is None:
        return None, options
    from lsr_prod.operations.table_generations import follow_tables

    options = {**deployment.storage.options, **options}
    return follow_tables(deployment, options), options


def _number(text: str, least: int = 0) -> int:
    if not text.isdecimal() or len(text) > 18 or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of {least} or more")
    return int(text)


def _add_verify_options(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE", nargs="?", type=location, help="folder or URI of the sparse table")
    parser.add_argument("--config", metavar="FILE", action="append", default=[], help="YAML file of the deployment")
    parser.add_argument(
        "--sample", metavar="N", type=partial(_number, least=1), default=1, help="compare one of N ids (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per example instead of tables")


@partial(Command, "table verify", add_options=_add_verify_options)
def verify(given: argparse.Namespace) -> int:
    """Compare the ids of the source with those of the table and of the published index, without the commit protocol.

        lsr-prod table verify TABLE --config deployment.yaml [--sample 64] [--json]

    Reads the sections ``source`` and ``encode``, and ``index`` if it is given. TABLE is the folder or URI of a sparse
    table; without it, that of the bundle. The source is read as it is now: after a change, run ``lsr-prod encode`` first.
    Its valid rows, under ``encode.on_duplicate``, have to be the rows of the table, each id once and with its text and
    stored fields; the published index has to have the ids of the table that it was built from, without those that were
    taken down. Ids on which the model failed, or of which no row is valid, are quarantined and not missing.

    With ``--sample N``, one of N ids is compared, of every part of the table. The source is read whole in any case.

    Prints a table of counts, a table of examples, and one line ``RESULT {json}``; ``--json`` prints one JSON object per
    example instead of the tables. Exit codes: 0 done, and nothing is missing, stale, doubled, unread or clipped, 1 failed,
    or some is, 2 bad usage or bad configuration.
    """
    if not given.config:
        raise errors.ConfigError("--config", "no deployment is given", "give the YAML file that encodes the table")
    from lsr_prod.config import load_deployment
    from lsr_prod.operations.audit.audit import figures, problems, verify_deployment

    log_to_stderr()
    deployment = load_deployment(
        [argument for path in given.config for argument in ("--config", path)],
        job="lsr-prod table verify",
        description="",
        needs=("source", "encode"),
        optional=("index", "gates"),
    )
    found = verify_deployment(deployment, given.table, given.sample)
    limit = deployment.gates.max_clipped_share
    _print_audit(found, limit, as_json=given.json)
    print_result(figures(found))
    return 1 if problems(found, limit) else 0


def _print_audit(found: "Audit", max_clipped_share: float | None, *, as_json: bool) -> None:
    from lsr_prod.jobs.terminal.tables import print_columns, print_table
    from lsr_prod.operations.audit.audit import figures, problems, remarks

    rows = [(name, one.doc_id, one.place) for name, examples in found.examples.items() for one in examples]
    if as_json:
        for name, doc_id, place in rows:
            print_json({"finding": name, "id": doc_id, "place": place})
        return
    print_table("lsr-prod table verify", figures(found))
    shown = [row for row in rows if row[0] in problems(found, max_clipped_share)]
    if shown:
        print_columns("examples", ("finding", "id", "place"), shown)
    for sentence in remarks(found, max_clipped_share):
        say(sentence)


def _add_quarantine_options(parser: CommandParser) -> None:
    add_place(parser, "QUARANTINE", "its folder or URI")
    parser.add_argument("--reason", metavar="REASON", help="only rows with this reason")
    parser.add_argument("--source", metavar="TEXT", help="only rows whose source file has this text in its location")
    parser.add_argument("--plan", metavar="PLAN", help="only rows of the plan whose digest begins so")
    parser.add_argument("--wave", metavar="N", type=_number, help="only rows of this wave")
    parser.add_argument("--limit", metavar="N", type=_number, help=f"rows to show (default {_ROWS}, or all as JSON)")
    parser.add_argument("--raw", action="store_true", help="show the first bytes of the rows too")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    add_store_option(parser)


@partial(Command, "table quarantine", add_options=_add_quarantine_options)
def quarantine(given: argparse.Namespace) -> None:
    """Show the rows of a quarantine: bad rows with their reason and their place in the source.

        lsr-prod table quarantine QUARANTINE [--reason broken_json] [--source a.jsonl] [--plan PLAN] [--wave 3] [--raw]
        lsr-prod table quarantine --config deployment.yaml [--json]

    QUARANTINE is the folder or URI of ``encode.quarantine``, by default that of the table with ``_quarantine``; folders of
    bad rows of other jobs can be shown too. Rows of a wave that the job did not commit, for example because more than
    ``encode.max_bad_fraction`` of the rows were bad, have the state ``not committed``. The bytes of a row are shown only
    with ``--raw``; control characters are always escaped.

    Prints a table of counts and a table of rows, or one JSON object per row with ``--json`` (all rows unless ``--limit`` is
    given). Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    uri, options = _quarantine_place(given)
    from lsr_prod.operations.status import QuarantineFilter, read_quarantine
    from lsr_prod.storage import Store

    wanted = QuarantineFilter(given.reason, given.source, given.plan, given.wave)
    rows: list[dict[str, Any]] = []
    limit = given.limit if given.limit is not None else sys.maxsize if given.json else _ROWS

    def show(row: dict[str, Any]) -> None:
        row = row if given.raw else {name: value for name, value in row.items() if name != "raw"}
        if given.json:
            print_json(row)
        else:
            rows.append(row)

    counts = read_quarantine(Store(uri, options), wanted, show, limit)
    if not given.json:
        _print_quarantine(counts, rows)


def _quarantine_place(given: argparse.Namespace) -> tuple[str, dict[str, str]]:
    deployment, options = _followed(given, "table quarantine", "QUARANTINE")
    if deployment is None:
        return given.quarantine, options
    from lsr_prod.config.section import quarantine_uri
    from lsr_prod.storage.folders import absolute

    encode = deployment.encode
    assert encode is not None
    return absolute(quarantine_uri(encode.quarantine, encode.table)), options


def _print_quarantine(counts: dict[tuple[str, str], int], rows: Sequence[dict[str, Any]]) -> None:
    from lsr_prod.jobs.terminal.tables import print_columns

    if not counts:
        say("no row matches")
        return
    found = [(reason, state, count) for (reason, state), count in sorted(counts.items())]
    print_columns("quarantined rows", ("reason", "state", "rows"), found)
    if not rows:
        return
    names = [name for name in rows[0] if name != "source_file"]
    cells = [[_cell(name, row[name]) for name in names] for row in rows]
    print_columns("rows", [name.replace("_", " ") for name in names], cells)
    total = sum(counts.values())
    if total > len(rows):
        say(f"{len(rows)} of {total:,} rows are shown; --limit shows more, --json all")


def _cell(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name == "plan":
        return value[:12]
    shown = logs.visible(value)
    return shown if name == "source" or len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _print_maintenance(summary: Mapping[str, Any]) -> None:
    from lsr_prod.jobs.terminal.tables import print_columns, print_table

    print_table("lsr-prod table maintain", scalars(summary))
    if summary["garbage_by_kind"]:
        kinds = [(kind.replace("_", " "), number) for kind, number in summary["garbage_by_kind"].items()]
        title = "files that would be deleted" if summary["dry_run"] else "deleted files"
        print_columns(title, ("kind", "files"), kinds)


@partial(Job, "table maintain", needs=("maintain",), show=_print_maintenance)
def maintain(deployment: "Deployment") -> Mapping[str, Any]:
    """Merge small parts of a sparse table and its quarantine, drop deleted rows, and delete files that nothing needs.

        lsr-prod table maintain --config deployment.yaml [--maintain.dry_run true] [--maintain.purge true]

    Reads the sections ``maintain``, ``ray`` and ``storage``. It may run while encode jobs and readers use the table: a
    merge is committed only if its parts have not been replaced, and files younger than ``maintain.retention_hours`` are
    never deleted: parts that no kept version names, drafts, markers of finished cells, plans that newer ones follow, and
    the log of versions that are not kept. Parts of which half of the rows are deleted are written again without these rows,
    with ``maintain.purge`` all parts with deleted rows. A dry run counts the merges, and lists in ``RESULT`` what would be
    deleted.

    Prints tables and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    from lsr_prod.operations import maintenance
    from lsr_prod.operations.table_generations import follow_maintained_table

    followed = follow_maintained_table(deployment)
    assert followed.maintain is not None
    return {"table": followed.maintain.table, **maintenance.maintain(followed).result()}
