"""Print the publications of an index: when, by whom, why, and what changed.

    lsr-prod index publications INDEX [--last 20] [--json]
    lsr-prod index publications --config deployment.yaml [--json]

INDEX is the folder or URI of ``index.output``. The newest publication is the one that readers use; a pinned publication
is not deleted by retention. Only manifests are read.

Prints a table, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.publications.place import index_parser, open_place
from lsr_prod.jobs.terminal.output import print_json
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code

if TYPE_CHECKING:
    from lsr_prod.operations.publications import HistoryEntry

_COLUMNS = ("number", "published at", "version", "state", "documents", "bytes", "what changed", "who", "why")


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = index_parser("index publications", __doc__)
    options.add_argument("--last", type=int, metavar="N", help="print only the newest N; default: all")
    return options


def main(argv: Sequence[str]) -> int:
    """Print the publications; returns the exit code."""
    return exit_code("index publications", lambda: _print(argv))


def _print(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    index = open_place("index publications", given)
    if given.last is not None and given.last < 1:
        raise ConfigError("--last", f"{given.last} is no number of publications", "give 1 or more")
    from lsr_prod.jobs.terminal.tables import print_columns
    from lsr_prod.operations.publications import read_history
    from lsr_prod.storage.publications import current_publication

    current_publication(index)  # an index without one is an error
    entries = read_history(index, last=given.last)
    if given.json:
        print_json({"index": index.uri, "publications": [one.to_json() for one in entries]})
        return
    print_columns(f"publications of {index.uri}, newest first", _COLUMNS, [_row(one) for one in entries])


def _row(entry: "HistoryEntry") -> list[Any]:
    from lsr_prod.operations.publications import version_bytes

    publication, version = entry.publication, entry.version
    states = [name for name, there in (("current", entry.current), ("pinned", entry.pin is not None)) if there]
    forced = [f"gate {one.gate} overruled: {one.reason}" for one in publication.forced]
    why = "; ".join(text for text in (publication.note, *forced) if text)
    return [
        publication.number,
        publication.published_at,
        publication.version,
        ", ".join(states),
        version.documents if version else None,
        version_bytes(version) if version else None,
        entry.difference.sentence() if entry.difference else entry.problem,
        publication.by,
        why,
    ]
