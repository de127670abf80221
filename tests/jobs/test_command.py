"""The command ``lsr-prod``: groups, bad usage, missing extras."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lsr_prod.jobs.command import COMMANDS, main

GROUPS = ("table", "index", "inspect")
ROOT = Path(__file__).parents[2]
PAGES = {f"inspect {kind}" for kind in ("index", "query", "run", "evaluation", "side-by-side", "sweep")}
NEEDS_NO_EXTRA = {"search", "index warm", *PAGES}
EXTRAS = ("ray", "torch", "transformers", "pydantic", "pydantic_settings", "yaml", "rich", "deltalake", "obstore")
ARGUMENTS = {
    "model": ["x", "y"],
    "push": ["x", "y/z"],
    "inspect lineage": ["x"],
    "inspect vocabulary": ["x"],
    "inspect terms": ["--index", "x"],
}
# A name that maps to None cannot be imported: the interpreter raises ModuleNotFoundError.
WITHOUT_EXTRAS = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS})); from lsr_prod.jobs.command import main; "


def python(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_help_lists_every_command_and_group(capsys: pytest.CaptureFixture[str]) -> None:
    for group in ("", *GROUPS):
        assert main([*group.split(), "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "Exit codes: 0 done" in shown
        for words, (_, summary) in COMMANDS.items():
            before, _, name = words.rpartition(" ")
            assert (f" {name} {summary}" in shown) == (before == group)
    assert {words.partition(" ")[0] for words in COMMANDS if " " in words} == set(GROUPS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_help_in_one_style(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: lsr-prod {name} ")
    assert "Exit codes: 0 done" in shown
    assert f"lsr-prod {name}" in shown.partition("\n")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_usage_of_every_subcommand_is_one_line_and_exit_code_2(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), "--no-such-option=hunter2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith(f"lsr-prod {name}: ")
    assert "hunter2" not in captured.err  # it may be a credential


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "lsr-prod: no command was given; see lsr-prod --help"),
        (["encod"], "lsr-prod: there is no command encod; did you mean encode?"),
        (["index"], "lsr-prod index: no command was given; see lsr-prod index --help"),
        (["index", "pni"], "lsr-prod index: there is no command pni; did you mean pin?"),
        (["index", "--quiet"], "lsr-prod index: --quiet is not a command; see lsr-prod index --help"),
        (["takedown"], "lsr-prod: there is no command takedown; did you mean index takedown?"),
        (["quarantin"], "lsr-prod: there is no command quarantin; did you mean table quarantine?"),
        (["xyzzy"], "lsr-prod: there is no command xyzzy; see lsr-prod --help"),
        (["--quiet"], "lsr-prod: --quiet is not a command; see lsr-prod --help"),
    ],
)
def test_unknown_subcommand_is_one_line_that_suggests_the_nearest(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err == line + "\n"


def test_interrupt_while_a_command_is_imported_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(words: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lsr_prod.jobs.command.load", interrupt)
    assert main(["train", "--config", "d.yaml"]) == 130
    assert capsys.readouterr().err == "lsr-prod train was interrupted\n"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lsr-prod 0.")


@pytest.mark.parametrize("argv", [["--help"], ["index", "--help"], ["search", "--help"], ["search", "/nowhere"]])
def test_help_and_search_import_neither_ray_nor_torch(argv: list[str]) -> None:
    code = (
        "import sys; from lsr_prod.jobs.command import main; main(sys.argv[1:]); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'ray', 'torch', 'pydantic', 'rich'}))"
    )
    assert python(code, *argv).stdout.splitlines()[-1] == "[]"


def test_missing_extra_of_every_subcommand_is_one_line_with_the_pip_command(tmp_path: Path) -> None:
    code = (
        f"{WITHOUT_EXTRAS}"
        f"codes = [main([*name.split(), *{ARGUMENTS}.get(name, ['--config', 'x'])]) "
        f"for name in {sorted({*COMMANDS} - NEEDS_NO_EXTRA)}]; "
        "print(codes)"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    names = sorted({*COMMANDS} - NEEDS_NO_EXTRA)
    assert [line.split(":")[0] for line in lines] == [f"lsr-prod {name}" for name in names]
    for line in lines:
        assert "is not installed; install it with: pip install 'lsr_prod[" in line
    assert done.stdout.strip() == str([2] * len(names))


def test_search_runs_without_extras() -> None:
    done = python(f"{WITHOUT_EXTRAS} print(main(['search', '/nowhere']))")
    assert done.stdout.splitlines()[-1] == "1", done.stderr
    assert "lsr-prod search failed: PublicationError" in done.stderr


def test_module_that_belongs_to_no_extra_keeps_its_traceback() -> None:
    code = "import sys; sys.modules['numpy'] = None; from lsr_prod.jobs.command import main; main(['search', 'x'])"
    done = python(code)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").glob("*.py")), ids=lambda path: path.stem)
def test_entry_points_of_ray_job_submit_run_their_subcommand(path: Path) -> None:
    (words,) = re.findall(r"main\(\[(.*), \*sys\.argv\[1:\]\]\)", path.read_text())
    command = " ".join(re.findall(r'"(.*?)"', words))
    assert command in COMMANDS
    assert path.stem in command.split()
    assert f"``lsr-prod {command}``" in path.read_text()
    assert len(path.read_text().splitlines()) < 10
