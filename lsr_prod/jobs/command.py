"""The command ``lsr-prod``: find the module of a subcommand, import it, and run its ``main``.

Modules are imported on demand, so that ``lsr-prod search`` needs neither Ray nor torch.
"""

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from lsr_prod import __version__
from lsr_prod.errors import MissingExtraError
from lsr_prod.extras import contrib, missing_extra
from lsr_prod.jobs.terminal.output import accept_utf8, complain, protect_output, say

COMMANDS = {
    "train": "train a model by a chain of stages",
    "mine": "mine hard negatives for training pairs",
    "click-set": "make evaluation sets and training pairs from a click log",
    "score": "score training rows with a teacher, for distillation",
    "model": "make a model directory from a masked language model",
    "export": "export a model as an ONNX bundle",
    "encode": "encode a corpus into a sparse table",
    "estimate": "estimate hours, storage and cost of encoding a corpus from measured runs",
    "vectors": "import or export vectors of other tools",
    "status": "say how far a sparse table is, and who works on it",
    "verify": "compare the ids of the source with those of the table and of the index",
    "quarantine": "show bad rows and their reasons",
    "maintain": "merge small parts of a sparse table and delete garbage",
    "index": "build an index version and publish it",
    "reindex": "encode, index, publish, and evaluate what has changed",
    "evaluate": "measure the quality and latency of a published index",
    "sweep": "measure models, prunings, thresholds and hybrid weights, and choose the cheapest good setting",
    "tune": "choose the hybrid weight and the overlap threshold of a published index",
    "takedown": "hide documents of a published index",
    "restore": "end the takedown of documents",
    "publications": "print the history of an index: when, by whom, why, what changed",
    "rollback": "publish an earlier version of an index again",
    "pin": "keep a publication from retention",
    "unpin": "remove the pin of a publication",
    "catalog": "print all versions of an index: lineage, size, why each is kept",
    "canary": "compare two indexes or versions on the same queries",
    "diff": "print what changed between two publications",
    "search": "search an index from a prompt or a pipe",
    "page": "write a report page about a query, an evaluation or a sweep",
    "warm": "compile the search kernels before the first query",
    "serve": "serve an index on Ray Serve",
    "lineage": "print what a model was made from",
    "inspect-vocabulary": "print facts about the output vocabulary of a model",
    "diagnose": "print figures of a model on texts, or of an index: dead, expanded, unexplained terms",
    "doctor": "check this machine, its stores and its cluster",
    "watch": "serve the metrics of a deployment for Prometheus",
    "completion": "print a completion script for bash or zsh",
}
"""Subcommand -> summary. Its module is in one of the two tables below, or ``lsr_prod.jobs.<subcommand>``."""

_CONTRIB = {"click-set": "click_sets.command", "estimate": "estimates.command"}

_MODULES = {
    "publications": "publications.history",
    "rollback": "publications.rollback",
    "pin": "publications.pin",
    "unpin": "publications.unpin",
    "catalog": "publications.catalog",
    "canary": "publications.canary",
    "diff": "publications.diff",
    "sweep": "tuning.sweep",
    "tune": "tuning.tune",
    "watch": "monitoring.watch",
    "page": "page.command",
    "diagnose": "diagnosis.diagnose",
    "verify": "diagnosis.verify",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code."""
    protect_output()
    accept_utf8()
    given = list(sys.argv[1:] if argv is None else argv)
    name, rest = (given[0], given[1:]) if given else ("", [])
    if name in ("-h", "--help"):
        say(_manual(), lines=True)
        return 0
    if name == "--version":
        say(f"lsr-prod {__version__}")
        return 0
    if name not in COMMANDS:
        complain(f"lsr-prod: {_unknown(name)}")
        return 2
    try:
        code: int = load(name).main(rest)
    except MissingExtraError as error:
        complain(f"lsr-prod {name}: {error}")
        return 2
    return code


def load(name: str) -> ModuleType:
    """Import the module of a subcommand."""
    try:
        if name in _CONTRIB:
            extra: ModuleType = contrib(_CONTRIB[name])
            return extra
        return import_module(f"lsr_prod.jobs.{_MODULES.get(name, name.replace('-', '_'))}")
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error


def _manual() -> str:
    width = max(map(len, COMMANDS))
    commands = "".join(f"  {name:{width}}  {summary}\n" for name, summary in COMMANDS.items())
    return (
        "usage: lsr-prod COMMAND [OPTIONS]\n\n"
        "Learned sparse retrieval: train, export, encode, index and search.\n\n"
        f"commands:\n{commands}\n"
        "lsr-prod COMMAND --help describes a command. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration."
    )


def _unknown(name: str) -> str:
    if not name:
        return "no command was given; see lsr-prod --help"
    if name.startswith("-"):
        return f"{name} is not a command; see lsr-prod --help"
    close = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    return f"there is no command {name}; " + (f"did you mean {close[0]}?" if close else "see lsr-prod --help")
