"""The command ``lsr-prod``: dispatch, bad usage, missing extras."""

import subprocess
import sys
from pathlib import Path

import pytest

from lsr_prod.jobs.command import COMMANDS, main

ROOT = Path(__file__).parents[2]
NEEDS_NO_EXTRA = {"search", "warm", "completion", "page"}
EXTRAS = ("ray", "torch", "transformers", "pydantic", "pydantic_settings", "yaml", "rich", "deltalake", "obstore")
ARGUMENTS = {
    "model": ["x", "y"],
    "lineage": ["x"],
    "inspect-vocabulary": ["x"],
    "diagnose": ["--index", "x"],
}
# A name that maps to None cannot be imported: the interpreter raises ModuleNotFoundError.
WITHOUT_EXTRAS = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS})); from lsr_prod.jobs.command import main; "


def python(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"  {name} " in shown
        assert summary in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_help_in_one_style(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: lsr-prod {name} ")
    assert "Exit codes: 0 done" in shown
    assert f"lsr-prod {name}" in shown.partition("\n")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_usage_of_every_subcommand_is_one_line_and_exit_code_2(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--no-such-option"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith(f"lsr-prod {name}: ")


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "lsr-prod: no command was given; see lsr-prod --help"),
        (["encod"], "lsr-prod: there is no command encod; did you mean encode?"),
        (["inspect"], "lsr-prod: there is no command inspect; did you mean inspect-vocabulary?"),
        (["xyzzy"], "lsr-prod: there is no command xyzzy; see lsr-prod --help"),
        (["--quiet"], "lsr-prod: --quiet is not a command; see lsr-prod --help"),
    ],
)
def test_unknown_subcommand_is_one_line_that_suggests_the_nearest(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err == line + "\n"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lsr-prod 0.")


@pytest.mark.parametrize("argv", [["--help"], ["search", "--help"], ["search", "/nowhere"]])
def test_help_and_search_import_neither_ray_nor_torch(argv: list[str]) -> None:
    code = (
        "import sys; from lsr_prod.jobs.command import main; main(sys.argv[1:]); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'ray', 'torch', 'pydantic', 'rich'}))"
    )
    assert python(code, *argv).stdout.splitlines()[-1] == "[]"


def test_missing_extra_of_every_subcommand_is_one_line_with_the_pip_command(tmp_path: Path) -> None:
    code = (
        f"{WITHOUT_EXTRAS}"
        f"codes = [main([name, *{ARGUMENTS}.get(name, ['--config', 'x'])]) "
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


def test_search_and_completion_run_without_extras() -> None:
    code = f"{WITHOUT_EXTRAS} print(main(['search', '/nowhere']), main(['completion', 'bash']))"
    done = python(code)
    assert done.stdout.splitlines()[-1] == "1 0", done.stderr
    assert "lsr-prod search failed: PublicationError" in done.stderr


def test_module_that_belongs_to_no_extra_keeps_its_traceback() -> None:
    code = "import sys; sys.modules['numpy'] = None; from lsr_prod.jobs.command import main; main(['search', 'x'])"
    done = python(code)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").glob("*.py")), ids=lambda path: path.stem)
def test_entry_points_of_ray_job_submit_run_their_subcommand(path: Path) -> None:
    assert path.stem in COMMANDS
    assert f'main(["{path.stem}", *sys.argv[1:]])' in path.read_text()
    assert len(path.read_text().splitlines()) < 10
