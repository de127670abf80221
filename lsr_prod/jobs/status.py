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

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.terminal.output import print_json, say
from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, exit_code, location, store_options

if TYPE_CHECKING:
    from lsr_prod.operations.status import PlanStatus, TableStatus


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("table status", __doc__)
    options.add_argument("table", metavar="TABLE", nargs="?", type=location, help="folder or URI of a sparse table")
    options.add_argument("--config", metavar="FILE", help="YAML file of the deployment, instead of TABLE")
    options.add_argument("--index", metavar="INDEX", type=location, help="folder or URI of an index")
    options.add_argument("--digest", action="store_true", help="compute the digest of the contents")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(options)
    return options


def main(argv: Sequence[str]) -> int:
    """Print the status; returns the exit code."""
    return exit_code("table status", lambda: _status(argv))


def print_status(status: "TableStatus") -> None:
    """Print the table, its plans, and a sentence about the plan that is not finished."""
    from lsr_prod.jobs.terminal.tables import print_columns, print_table

    facts = {"table": status.table, "documents": status.documents, "version": status.version}
    print_table("sparse table", {**facts, "committed": _ago(status.committed_at)})
    headings = ("plan", "kind", "waves", "state", "attempt", "host", "process", "since", "last activity")
    print_columns("plans, oldest first", headings, [_row(plan) for plan in status.plans])
    for plan in status.plans:
        if (sentence := _sentence(plan)) is not None:
            say(sentence)


def _row(plan: "PlanStatus") -> list[Any]:
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
    why = (
        f"{where} does not exist any more"
        if plan.state == "ended"
        else f"{where} has finished no cell for {_duration(time.time() - (plan.last_activity or 0.0))}"
    )
    return f"{name} is not finished: {far}; {why}. The same lsr-prod encode command resumes it."


def _ago(moment: float | None) -> str | None:
    return None if moment is None else f"{_duration(max(time.time() - moment, 0.0))} ago"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _places(argv: Sequence[str]) -> tuple[Any, str, str | None, dict[str, str]]:
    given = parser().parse_args(argv)
    if (given.table is None) == (given.config is None):
        raise ConfigError("command line", "give either TABLE or --config", "see lsr-prod table status --help")
    if given.config is None:
        return given, given.table, given.index, store_options(given)
    from lsr_prod.config import load_deployment
    from lsr_prod.operations.table_generations import follow_tables
    from lsr_prod.storage.folders import absolute

    arguments = ["--config", given.config]
    deployment = load_deployment(arguments, job="lsr-prod table status", description="", needs=("encode",))
    options = {**deployment.storage.options, **store_options(given)}
    deployment = follow_tables(deployment, options)
    encode, index = deployment.encode, deployment.index
    assert encode is not None
    published = given.index or (None if index is None else absolute(index.output))
    return given, absolute(encode.table), published, options


def _status(argv: Sequence[str]) -> None:
    given, table, index, options = _places(argv)
    from lsr_prod.encoding import table_digest
    from lsr_prod.operations.status import published_version, table_status
    from lsr_prod.storage import Store

    status = table_status(Store(table, options))
    digest = {"digest": table_digest(table, options)} if given.digest else {}
    published = None if index is None else published_version(Store(index, options))
    if given.json:
        print_json({**status.result(), **digest, "publication": published})
        return
    print_status(status)
    if digest:
        say(f"The digest of the contents is {digest['digest']}.")
    if index is not None:
        from lsr_prod.jobs.terminal.tables import print_table

        print_table("index", {"index": index, **({"publication": "none"} if published is None else published)})
