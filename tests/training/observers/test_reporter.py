import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config.language import WatchSettings
from lsr_prod.errors import ArtifactError, ConfigError, StorageError
from lsr_prod.training.observers.reports import Reporter, read_log


def _reporter(path: Path, resumed_at: int | None = None) -> Reporter:
    return Reporter(path, WatchSettings(), run="run-1", resumed_at=resumed_at)


def _steps(path: Path) -> list[int]:
    return [report["step"] for report in read_log(path)]


def test_report_is_line_with_step_time_and_values(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.jsonl"
    start = time.time()
    with _reporter(path) as reporter:
        reporter.report(10, {"loss": 0.1, "mfu": None, "l0_query": math.nan, "a": math.inf, "b": -math.inf})
        assert len(read_log(path)) == 1, "it is there before the run ends"
        reporter.report(20, {"loss": 1.0})
    lines = path.read_text().splitlines()
    first = json.loads(lines[0], parse_constant=pytest.fail)  # no NaN, which is no JSON
    assert first["step"] == 10
    assert first["values"] == {"loss": 0.1, "mfu": None, "l0_query": "nan", "a": "inf", "b": "-inf"}
    assert start <= first["time"] <= time.time()
    assert _steps(path) == [10, 20]


@given(kills=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 25)), max_size=4))
def test_log_contains_every_step_once_after_kills(
    kills: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    step, resumed_at = 0, None
    for until, back, torn in kills:
        with _reporter(path, resumed_at) as reporter:
            for now in range(step + 1, step + until + 1):
                reporter.report(now, {"loss": now / 7})
        if torn:  # the process was killed inside the next write
            with path.open("a") as file:
                file.write(json.dumps({"step": step + until + 1, "time": 1.0, "values": {}})[:torn])
        step = resumed_at = max(0, step + until - back)
    with _reporter(path, resumed_at) as reporter:
        for now in range(step + 1, 41):
            reporter.report(now, {"loss": now / 7})
    reports = read_log(path)
    assert [(report["step"], report["values"]) for report in reports] == [(n, {"loss": n / 7}) for n in range(1, 41)]


def test_damaged_line_inside_the_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with _reporter(path) as reporter:
        for step in range(3):
            reporter.report(step, {})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * 9 + b"\n" + lines[2])
    with pytest.raises(ArtifactError, match=r"line 2 of .*log\.jsonl is no report .*; delete the line"):
        read_log(path)


def test_new_run_starts_with_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for _ in range(2):
        with _reporter(path) as reporter:
            reporter.report(1, {})
    assert _steps(path) == [1]


def test_unwritable_log_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        _reporter(tmp_path / "file" / "log.jsonl")
    with pytest.raises(StorageError, match="cannot be written"):
        _reporter(tmp_path)


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "it's", "-\n"])
def test_reporter_rejects_run_name_with_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="may contain only"):
        Reporter(tmp_path / "log.jsonl", WatchSettings(), run=name)


def test_reporter_closes_log_if_tracker_fails_to_open(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"watch\.mlflow"):
        Reporter(tmp_path / "log.jsonl", WatchSettings(mlflow="nowhere://x"), run="run-1")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    told: list[Any] = []

    class Listener:
        def report(self, step: int, values: dict[str, float], now: float) -> None:  # noqa: ARG002
            told.append((step, values))

        def close(self, *, failed: bool) -> None:
            told.append(failed)

    monkeypatch.setattr("lsr_prod.training.observers.reports.open_trackers", lambda *_: [Listener()])
    return told


def test_trackers_receive_values_and_final_status(tmp_path: Path, told: list[Any]) -> None:
    def fail() -> None:
        with _reporter(tmp_path / "log.jsonl") as reporter:
            reporter.report(10, {"loss": 1, "mfu": None})
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with _reporter(tmp_path / "log.jsonl"):
        pass
    assert told == [(10, {"loss": 1.0}), True, False]
