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

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code, location

if TYPE_CHECKING:
    from lsr_prod.operations.audit import Audit


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("table verify", __doc__)
    options.add_argument("table", metavar="TABLE", nargs="?", type=location, help="folder or URI of the sparse table")
    options.add_argument("--config", metavar="FILE", action="append", default=[], help="YAML file of the deployment")
    options.add_argument("--sample", metavar="N", type=_count, default=1, help="compare one of N ids (default: all)")
    options.add_argument("--json", action="store_true", help="print one JSON object per example instead of tables")
    return options


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return exit_code("table verify", lambda: _verify(argv))


def _verify(argv: Sequence[str]) -> int:
    given = parser().parse_args(argv)
    if not given.config:
        raise ConfigError("--config", "no deployment is given", "give the YAML file that encodes the table")
    from lsr_prod.config import load_deployment
    from lsr_prod.jobs.terminal.log import log_to_stderr
    from lsr_prod.jobs.terminal.output import print_result
    from lsr_prod.operations.audit.deployment import figures, problems, verify_deployment

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
    _print(found, limit, as_json=given.json)
    print_result(figures(found))
    return 1 if problems(found, limit) else 0


def _print(found: "Audit", max_clipped_share: float | None, *, as_json: bool) -> None:
    from lsr_prod.jobs.terminal.output import print_json, say
    from lsr_prod.jobs.terminal.tables import print_columns, print_table
    from lsr_prod.operations.audit.deployment import figures, problems, remarks

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


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text[:18]) > 0 or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)
