"""Shell completion, tested in the shell where it is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from lsr_prod.jobs import command
from lsr_prod.jobs.completion import bash, options_by_command, zsh


@pytest.fixture(scope="module")
def options() -> dict[str, list[str]]:
    return options_by_command()


def complete(script: str, folder: Path, *words: str) -> list[str]:
    """Completions of the last word."""
    (folder / "script").write_text(script)
    typed = " ".join(f"'{word}'" for word in ("lsr-prod", *words))
    code = f"source {folder}/script; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _lsr_prod; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_subcommands(options: dict[str, list[str]], tmp_path: Path) -> None:
    assert complete(bash(options), tmp_path, "in") == ["index", "inspect-vocabulary"]
    assert complete(bash(options), tmp_path, "") == [*command.COMMANDS, "--help", "--version"]


def test_bash_completes_options_of_the_subcommand(options: dict[str, list[str]], tmp_path: Path) -> None:
    script = bash(options)
    assert complete(script, tmp_path, "encode", "--con") == ["--config"]
    assert complete(script, tmp_path, "encode", "--config", "x", "--encode.max_l") == ["--encode.max_length"]
    assert complete(script, tmp_path, "encode", "--train.") == []
    assert complete(script, tmp_path, "restore", "--n") == ["--note"]
    assert complete(script, tmp_path, "search", "--thr") == ["--threshold"]
    assert complete(script, tmp_path, "encode", "--config", "dep") == []  # file names, by `complete -o default`


def test_options_are_those_that_help_describes(options: dict[str, list[str]]) -> None:
    assert set(options) == set(command.COMMANDS)
    assert all("--help" in words for words in options.values())
    assert {"--evaluate.k", "--index.shards", "--ray.address"} <= set(options["reindex"])
    assert {"--local", "--serve.http_port"} <= set(options["serve"])
    assert "--to" in options["rollback"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_accepts_the_script(options: dict[str, list[str]], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(zsh(options))
    code = f"autoload -Uz compinit; compinit -u -D; source {tmp_path}/script; whence -w _lsr_prod"
    done = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True, check=True)
    assert "function" in done.stdout


def test_zsh_script_names_every_subcommand_with_its_options(options: dict[str, list[str]]) -> None:
    script = zsh(options)
    assert script.startswith("#compdef lsr-prod\n")
    for name, words in options.items():
        assert f"'{name}:{command.COMMANDS[name]}'" in script
        assert f"    {name}) words_of_command=({' '.join(words)}) ;;" in script
