"""The command ``lsr-prod`` and its groups, on click.

The module of a command is imported when the command runs, so that ``lsr-prod search`` needs neither Ray nor torch, and
``lsr-prod --help`` no module at all. A command parses its own arguments, since those of a job follow from the settings.
"""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from lsr_prod import __version__, errors, extras
from lsr_prod.jobs.terminal.output import accept_utf8, complain, protect_output, say

COMMANDS = {
    "model": ("training", "make a model directory from a masked language model"),
    "train": ("training", "train a model by a chain of stages"),
    "mine": ("training", "mine hard negatives for training pairs"),
    "score": ("training", "score training rows with a teacher, for distillation"),
    "click-set": ("click_sets.command", "make evaluation sets and training pairs from a click log"),
    "export": ("training", "export a model as an ONNX bundle"),
    "push": ("training", "upload a model directory to a repository of Hugging Face"),
    "encode": ("encode", "encode a corpus into a sparse table"),
    "vectors": ("vectors.command", "import or export vectors of other tools"),
    "reindex": ("reindex", "encode, index, publish, and evaluate what has changed"),
    "search": ("search", "search an index from a prompt or a pipe"),
    "evaluate": ("evaluate", "measure the quality and latency of a published index"),
    "sweep": (
        "sweeps.command",
        "measure models, prunings, thresholds and hybrid weights, and choose the cheapest good setting",
    ),
    "tune": ("sweeps.command", "choose the hybrid weight and the overlap threshold of a published index"),
    "serve": ("serving", "serve an index on Ray Serve"),
    "mcp": ("serving", "serve an index to agents as tools of the Model Context Protocol"),
    "watch": ("serving", "serve the metrics of a deployment for Prometheus"),
    "doctor": ("doctor.command", "check this machine, its stores and its cluster"),
    "table status": ("table", "say how far a sparse table is, and who works on it"),
    "table verify": ("table", "compare the ids of the source with those of the table and of the index"),
    "table quarantine": ("table", "show bad rows and their reasons"),
    "table maintain": ("table", "merge small parts of a sparse table and delete garbage"),
    "table estimate": ("estimates.command", "estimate hours, storage and cost of encoding a corpus from measured runs"),
    "index build": ("index", "build an index version and publish it"),
    "index publications": ("publications.command", "print the history of an index: when, by whom, why, what changed"),
    "index catalog": ("publications.command", "print all versions of an index: lineage, size, why each is kept"),
    "index diff": ("publications.command", "print what changed between two publications"),
    "index canary": ("index", "compare two indexes or versions on the same queries"),
    "index pin": ("publications.command", "keep a publication from retention"),
    "index unpin": ("publications.command", "remove the pin of a publication"),
    "index rollback": ("index", "publish an earlier version of an index again"),
    "index takedown": ("index", "hide documents of a published index"),
    "index restore": ("index", "end the takedown of documents"),
    "index warm": ("search", "open an index and run its first query"),
    "inspect vocabulary": ("vocabularies.command", "print facts about the output vocabulary of a model"),
    "inspect lineage": ("training", "print what a model was made from"),
    "inspect terms": (
        "diagnostics.command",
        "print figures of a model on texts, or of an index: dead, expanded, unexplained terms",
    ),
    "inspect index": ("pages.command", "write the page of an index: bytes, postings, terms, publications"),
    "inspect query": ("pages.command", "write the page of a query: expansion, hits and contributions"),
    "inspect run": ("pages.command", "write the page of a run of train, encode or index"),
    "inspect evaluation": ("pages.command", "write the page of an evaluation: measures, comparisons, costs"),
    "inspect side-by-side": ("pages.command", "write the page of a canary: queries by change, drift of terms"),
    "inspect sweep": ("pages.command", "write the page of a sweep: quality against cost, the chosen setting"),
}
"""Words of a command -> its module and its summary. A name with a dot is a module of ``lsr_prod_contrib``, others are
in ``lsr_prod.jobs``.

In the module, the command has the name of its last word.
"""

_GROUPS = {
    "table": "status, checks and maintenance of a sparse table",
    "index": "build, publish and change an index",
    "inspect": "figures and report pages of models, indexes, queries and runs",
}
_EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration."


class _Command(click.Command):
    """One command; it is loaded when it runs, parses its arguments, and returns the exit code."""

    def __init__(self, words: str) -> None:
        super().__init__(words.split()[-1], short_help=COMMANDS[words][1], add_help_option=False)
        self.words = words

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> int:
        try:
            code: int = load(self.words).run(ctx.args)
        except errors.MissingExtraError as error:
            complain(f"lsr-prod {self.words}: {error}")
            return 2
        except KeyboardInterrupt:  # while the module is imported
            complain(f"lsr-prod {self.words} was interrupted")
            return 130
        return code

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the options that ``--help`` describes; for other words, let the shell complete file names."""
        if not incomplete.startswith("-"):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name, help=text) for name, text in options(self.words) if name.startswith(incomplete)]


class _Group(click.Group):
    """Commands, or groups of them; help and errors have the style of the commands."""

    def __init__(self, words: str, summary: str, commands: Sequence[click.Command]) -> None:
        super().__init__(words, {str(one.name): one for one in commands}, short_help=summary, add_help_option=False)
        self.words = f"lsr-prod {words}".rstrip()
        self.params += [click.Option(["-h", "--help"], is_flag=True, is_eager=True, callback=_show_help)]
        self.help = f"{summary[0].upper()}{summary[1:]}."
        self.epilog = f"{self.words} COMMAND --help describes a command. {_EXIT_CODES}"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(f"no command was given; see {self.words} --help", ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            near = {name: name for name in self.commands}
            if ctx.parent is None:  # a command of a group is also found by its own name
                near = {words.split()[-1]: words for words in COMMANDS} | near
            close = difflib.get_close_matches(args[0], near, n=1, cutoff=0.5)
            remedy = f"did you mean {near[close[0]]}?" if close else f"see {self.words} --help"
            raise click.UsageError(f"there is no command {args[0]}; {remedy}", ctx)
        return super().resolve_command(ctx, args)


def _show_help(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        say(ctx.get_help(), lines=True)
        ctx.exit()


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        say(f"lsr-prod {__version__}")
        ctx.exit()


def tree() -> click.Group:
    """Return the command ``lsr-prod`` with all its groups."""
    groups: list[click.Command] = [
        _Group(name, summary, [_Command(words) for words in COMMANDS if words.startswith(f"{name} ")])
        for name, summary in _GROUPS.items()
    ]
    single = [_Command(words) for words in COMMANDS if " " not in words]
    root = _Group("", "learned sparse retrieval: train, export, encode, index and search", [*single, *groups])
    root.params += [click.Option(["--version"], is_flag=True, is_eager=True, callback=_show_version)]
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    protect_output()
    accept_utf8()
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        code: int = tree().main(given, prog_name="lsr-prod", standalone_mode=False, max_content_width=120)
    except click.UsageError as error:
        path = "lsr-prod" if error.ctx is None else error.ctx.command_path
        if isinstance(error, click.NoSuchOption):
            complain(f"{path}: {error.option_name} is not a command; see {path} --help")
        else:
            complain(f"{path}: {error.message}")
        return 2
    return code


def load(words: str) -> Any:
    """Import the module of a command; returns the command."""
    module = COMMANDS[words][0]
    try:
        found = extras.contrib(module) if "." in module else import_module(f"lsr_prod.jobs.{module}")
    except ModuleNotFoundError as error:
        raise extras.missing_extra(error) from error
    return getattr(found, words.split()[-1].replace("-", "_"))


def options(words: str) -> Iterable[tuple[str, str]]:
    """Yield the options of a command that ``--help`` describes; without its extra, only ``--help``."""
    try:
        parser = load(words).parser()
    except (errors.MissingExtraError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError):
            extras.missing_extra(error)  # raises the error again if the module is none of an extra
        yield "--help", "describe the command"
        return
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield from ((name, action.help or "") for name in action.option_strings)
