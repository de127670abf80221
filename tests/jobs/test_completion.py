"""Shell completion by click: the script of a shell asks the command for the words that can follow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lsr_prod.jobs.command import COMMANDS, main, options

ROOT = Path(__file__).parents[2]
RUN = "import sys; sys.argv = ['lsr-prod']; from lsr_prod.jobs.command import main; main()"


def ask(instruction: str, code: str = RUN, **variables: str) -> str:
    environment = {**os.environ, "_LSR_PROD_COMPLETE": instruction, **variables}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def complete(*words: str, code: str = RUN) -> list[str]:
    """Completions of the last word in bash; file names are the answer ``file``."""
    typed = " ".join(("lsr-prod", *words))
    return completions(ask("bash_complete", code, COMP_WORDS=typed, COMP_CWORD=str(len(words))))


def completions(answer: str) -> list[str]:
    return ["file" if line.startswith("file,") else line.partition(",")[2] for line in answer.splitlines() if line]


def test_bash_completes_commands_and_groups() -> None:
    assert complete("in") == ["index", "inspect"]
    assert complete("index", "p") == ["publications", "pin"]
    assert complete("table", "") == ["status", "verify", "quarantine", "maintain", "estimate"]
    assert "--version" in complete("--")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("encode", "--con"), ["--config"]),
        (("encode", "--config", "x", "--encode.max_l"), ["--encode.max_length"]),
        (("encode", "--train."), []),
        (("index", "restore", "--n"), ["--note"]),
        (("index", "rollback", "--to"), ["--to"]),
        (("reindex", "--index.shards"), ["--index.shards"]),
        (("serve", "--serve.http_p"), ["--serve.http_port"]),
        (("search", "--thr"), ["--threshold"]),
        (("encode", "--config", "dep"), ["file"]),
    ],
)
def test_bash_completes_options_that_help_describes(
    words: tuple[str, ...], found: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = {"_LSR_PROD_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("lsr-prod", *words))}
    for name, value in (variables | {"COMP_CWORD": str(len(words))}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["lsr-prod"])
    with pytest.raises(SystemExit) as ended:
        main()
    answer = capsys.readouterr()
    assert (ended.value.code, answer.err) == (0, "")
    assert completions(answer.out) == found


def test_command_without_its_extra_is_completed_without_its_options() -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys(('pydantic', 'pydantic_settings'))); {RUN}"
    assert complete("encode", "--", code=code) == ["--help"]


def test_command_whose_module_does_not_exist_has_no_options_but_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "encode", ("no_such_module", ""))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        list(options("encode"))


def test_bash_accepts_its_script() -> None:
    script = ask("bash_source") + "complete -p lsr-prod"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "complete -o nosort -F _lsr_prod_completion lsr-prod\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script(shell: str) -> None:
    assert f"_LSR_PROD_COMPLETE={shell}_complete" in ask(f"{shell}_source")
