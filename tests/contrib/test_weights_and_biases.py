"""Weights & Biases with the real package, offline."""

import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config.language import WatchSettings
from lsr_prod.errors import ConfigError, MissingExtraError
from lsr_prod.training.observers.reports import Reporter, check_watch, read_log

KEY = "0123456789abcdef" * 2 + "01234567"
_HEADER = 7  # bytes of a file, and of a record: checksum, length, type


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of an offline run that has a key all the same."""
    pytest.importorskip("wandb")
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # an earlier test may have left a connection
    monkeypatch.delenv("WANDB_DIR", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", KEY)


def _records(file: Path) -> list[Any]:
    """Return what an offline run has written so far: a log of LevelDB with one block, records in protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    data, place, found = file.read_bytes(), _HEADER, []
    assert len(data) < 2**15, "one block"
    while place < len(data):
        (size,) = struct.unpack_from("<H", data, place + 4)
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data[place + _HEADER : place + _HEADER + size])
        place += _HEADER + size
        found.append(record)
    return found


def _history(file: Path) -> list[dict[str, Any]]:
    """Return the logged values of an offline run; its service may write the last records after the run has ended."""
    while not any(record.WhichOneof("record_type") == "exit" for record in _records(file)):
        time.sleep(0.05)  # the limit of every test ends a wait without end
    histories = [record.history for record in _records(file) if record.WhichOneof("record_type") == "history"]
    return [{one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in h.item} for h in histories]


@pytest.mark.long
@pytest.mark.usefixtures("offline")
def test_offline_run_has_every_report_and_no_key(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = WatchSettings(wandb="retrieval")
    check_watch(settings)
    with Reporter(tmp_path / "run" / "steps.jsonl", settings, run="run-1") as reporter:
        reporter.report(10, {"loss": 2.5, "validation/RR@10": 0.25})
        reporter.report(20, {"loss": 1.5, "dead_terms": None})
    (file,) = (tmp_path / "run").rglob("*.wandb")
    found = [{key: one[key] for key in ("_step", "loss", "validation/RR@10") if key in one} for one in _history(file)]
    assert found == [{"_step": 10, "loss": 2.5, "validation/RR@10": 0.25}, {"_step": 20, "loss": 1.5}]
    assert [one["step"] for one in read_log(tmp_path / "run" / "steps.jsonl")] == [10, 20]
    for written in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert KEY.encode() not in written.read_bytes()
    captured = capfd.readouterr()
    assert KEY not in captured.out + captured.err
    assert captured.out == ""


@pytest.mark.usefixtures("offline")
def test_run_that_cannot_be_opened_is_a_config_error_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    def refuse(**_: object) -> None:
        raise wandb.errors.CommError(f"the key {KEY} was refused")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(
        ConfigError, match=r"watch.wandb: wandb cannot be opened \(the key \.\.\. was refused\)"
    ) as caught:
        Reporter(tmp_path / "steps.jsonl", WatchSettings(wandb="retrieval"), run="run-1")
    cause = caught.value.__cause__
    assert cause is not None
    assert KEY not in str(cause)
    assert cause.__cause__ is None


def test_missing_package_is_reported_with_the_line_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"install it with: pip install 'lsr_prod\[wandb\]'"):
        check_watch(WatchSettings(wandb="retrieval"))
    check_watch(WatchSettings())


@pytest.mark.parametrize("project", [KEY, "wandb_v1_" + KEY])
def test_key_in_the_place_of_the_project_is_refused(project: str) -> None:
    with pytest.raises(ConfigError, match="set WANDB_API_KEY in the environment") as caught:
        WatchSettings(wandb=project)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("project", ["", "a b", "a/b/c", "https://user:secret@host/project"])
def test_wrong_project_is_refused(project: str) -> None:
    with pytest.raises(ValueError, match="wandb"):
        WatchSettings(wandb=project)
