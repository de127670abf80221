"""Print a completion script for bash or zsh, made from the parsers of all subcommands.

    source <(lsr-prod completion bash)
    lsr-prod completion zsh > ~/.zfunc/_lsr-prod    # a folder of $fpath

Subcommands whose extra is not installed are completed without their options. Exit codes: 0 done, 2 bad usage.
"""

import argparse
from collections.abc import Mapping, Sequence

from lsr_prod.errors import MissingExtraError
from lsr_prod.jobs import command
from lsr_prod.jobs.terminal.output import say
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("completion", __doc__)
    options.add_argument("shell", choices=("bash", "zsh"), help="shell that reads the script")
    return options


def main(argv: Sequence[str]) -> int:
    """Print the script; returns the exit code."""
    return exit_code("completion", lambda: _print(parser().parse_args(argv).shell))


def options_by_command() -> dict[str, list[str]]:
    """Return the options that ``--help`` describes, by subcommand."""
    found = {}
    for name in command.COMMANDS:
        try:
            module = command.load(name)
        except MissingExtraError:
            found[name] = ["--help"]
            continue
        actions = (module.JOB.parser() if hasattr(module, "JOB") else module.parser())._actions
        found[name] = [
            option for action in actions if action.help != argparse.SUPPRESS for option in action.option_strings
        ]
    return found


def bash(options: Mapping[str, Sequence[str]]) -> str:
    """Return a script that completes subcommands and options in bash, and file names elsewhere."""
    cases = "".join(f'    {name}) words="{" ".join(words)}" ;;\n' for name, words in options.items())
    return (
        "_lsr_prod() {\n"
        '  local current="${COMP_WORDS[COMP_CWORD]}" words=""\n'
        '  case "${COMP_WORDS[1]}" in\n'
        f"{cases}"
        "  esac\n"
        f'  if ((COMP_CWORD == 1)); then words="{" ".join(options)} --help --version"; fi\n'
        "  COMPREPLY=()\n"
        '  if ((COMP_CWORD == 1)) || [[ "$current" == -* ]]; then\n'
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))\n'
        "  fi\n"
        "}\n"
        "complete -o default -F _lsr_prod lsr-prod\n"
    )


def zsh(options: Mapping[str, Sequence[str]]) -> str:
    """Return a script that completes subcommands and options in zsh, and file names elsewhere."""
    cases = "".join(f"    {name}) words=({' '.join(words)}) ;;\n" for name, words in options.items())
    commands = " ".join(f"'{name}:{command.COMMANDS[name]}'" for name in options)
    return (
        "#compdef lsr-prod\n"
        "_lsr_prod() {\n"
        "  local -a words_of_command commands\n"
        f"  commands=({commands})\n"
        "  if ((CURRENT == 2)); then _describe command commands; return; fi\n"
        '  case "${words[2]}" in\n'
        f"{cases.replace('words=', 'words_of_command=')}"
        "  esac\n"
        "  if [[ $PREFIX == -* ]]; then compadd -- $words_of_command; else _files; fi\n"
        "}\n"
        'if [[ "$funcstack[1]" == _lsr-prod ]]; then _lsr_prod "$@"; else compdef _lsr_prod lsr-prod; fi\n'
    )


def _print(shell: str) -> None:
    options = options_by_command()
    say((bash(options) if shell == "bash" else zsh(options)).rstrip("\n"), lines=True)
