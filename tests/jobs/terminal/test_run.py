"""Exit codes, messages and closing tables that all jobs share."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError, MissingExtraError, SourceError
from lsr_prod.jobs.terminal.shell import Job


def _run(work: Any, tmp_path: Path) -> int:
    (tmp_path / "d.yaml").write_text("source: {paths: [a]}")
    return Job("x", work, needs=("source",)).run(["--config", str(tmp_path / "d.yaml")])


def test_finished_job_prints_table_and_one_result_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(deployment: Deployment) -> Mapping[str, Any]:
        assert deployment.source is not None
        return {"paths": len(deployment.source.paths), "seconds": 1.5, "parts": {"a": 1}}

    assert _run(work, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1].removeprefix("RESULT ")) == {"paths": 1, "seconds": 1.5, "parts": {"a": 1}}
    assert any("seconds" in line and "1.500" in line for line in lines[:-1])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("source.paths", "nothing there", "give a path"), 2),
        (MissingExtraError("ray", "jobs"), 2),
        (SourceError("torn"), 1),
    ],
)
def test_deliberate_error_becomes_one_line_and_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    def work(deployment: Deployment) -> Mapping[str, Any]:
        raise error

    assert _run(work, tmp_path) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert str(error) in captured.err


def test_unexpected_error_is_one_line_with_its_traceback_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(deployment: Deployment) -> Mapping[str, Any]:
        raise ZeroDivisionError("no \x1b[2J documents")

    assert _run(work, tmp_path) == 1
    logged, line = capsys.readouterr().err.splitlines()
    assert "in work" in json.loads(logged)["exception"]
    assert line.startswith("lsr-prod x failed: ZeroDivisionError: no \\x1b[2J documents; lsr_prod does not expect")


def test_full_disk_that_no_part_of_the_job_expects_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(deployment: Deployment) -> Mapping[str, Any]:
        raise OSError(errno.ENOSPC, "No space left on device", "/out/file")

    assert _run(work, tmp_path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "lsr-prod x failed: DiskFullError: /out/file cannot be written ([Errno 28] No space left on device); "
        "free space or inodes on its disk, then run again"
    )


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENAMETOOLONG])
def test_path_that_the_system_refuses_is_one_line_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def work(deployment: Deployment) -> Mapping[str, Any]:
        raise OSError(number, "it says so", "/in/file")

    assert _run(work, tmp_path) == 1
    assert capsys.readouterr().err == ("lsr-prod x failed: /in/file cannot be used (it says so); give another path\n")


def test_interrupted_job_ends_with_130(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(deployment: Deployment) -> Mapping[str, Any]:
        raise KeyboardInterrupt

    assert _run(work, tmp_path) == 130
    assert capsys.readouterr().err == "lsr-prod x was interrupted\n"
