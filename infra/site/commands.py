"""Write docs/commands.md from the commands of ``lsr-prod``: ``python -m infra.site.commands``."""

from pathlib import Path

from lsr_prod.jobs.command import COMMANDS, options

PAGE = Path(__file__).parents[2] / "docs/commands.md"
_HEAD = """# Commands

Written by `python -m infra.site.commands`. `lsr-prod COMMAND --help` describes a command and its options; the commands
with `--config` also take each setting that they read as `--SECTION.FIELD VALUE`. Exit codes: 0 done, 1 failed, 2 bad
usage or bad configuration (nothing was written), 130 interrupted, 141 the reader of the output has left.

`eval "$(_LSR_PROD_COMPLETE=bash_source lsr-prod)"` completes commands and options in bash; `zsh_source` and
`fish_source` give the scripts of the other shells.

| command | what it does | options |
|---|---|---|
"""


def page() -> str:
    """Return the page, one row per command."""
    return _HEAD + "".join(
        f"| `lsr-prod {words}` | {summary} | {' '.join(_names(words))} |\n" for words, (_, summary) in COMMANDS.items()
    )


def _names(words: str) -> list[str]:
    """Return the options of a command without its settings and without ``--help``."""
    return [f"`{name}`" for name, _ in options(words) if "." not in name and name not in ("-h", "--help")]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
