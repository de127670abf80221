"""Records of nights, and the metrics that are read from them."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, DiskFullError, PublicationError, SourceError
from lsr_prod.operations.nights import DeploymentMetrics, delete_old_nights, last_nights, recorded_night
from lsr_prod.storage import Store

pytest.importorskip("prometheus_client")


def night(index: Store, *, numbers: tuple[int | None, int | None] = (3, 3), gates: tuple[str, ...] = (), fail=None):
    given = iter(numbers)

    def run():
        if fail is not None:
            raise fail
        return {"encode.rows_in": 200, "encode.quarantined": 4, "encode.waves": 1, "encode.busy_share": 0.9}

    return recorded_night(index, run, published=lambda: next(given), refused=lambda: gates)


def metrics(index: Store) -> dict[str, float]:
    found = DeploymentMetrics(index, seconds=0).collect()
    return {
        sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
        for metric in found
        for sample in metric.samples
    }


def test_each_end_of_a_night_has_its_outcome(tmp_path: Path) -> None:
    index = Store(str(tmp_path))
    assert last_nights(index) == (None, None)
    night(index, numbers=(None, 1))
    last, good = last_nights(index)
    assert last is not None
    assert (last.outcome, last.quarantined_share, last.busy_share) == ("published", 0.02, 0.9)
    night(index)
    assert last_nights(index)[0].outcome == "unchanged"
    with pytest.raises(PublicationError):
        night(index, gates=("documents",), fail=PublicationError("refused"))
    refused, still_good = last_nights(index)
    assert (refused.outcome, refused.refused, refused.error) == ("refused", ("documents",), "PublicationError")
    with pytest.raises(SourceError):
        night(index, fail=SourceError("s3://user:secret@bucket is gone"))
    assert last_nights(index)[0].outcome == "failed"
    assert last_nights(index)[1] == still_good > good
    assert not [path for path in tmp_path.rglob("*.json") if "secret" in path.read_text()]


def test_error_of_a_night_is_seen_if_its_record_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFullError("the index cannot be written")

    monkeypatch.setattr(Store, "put_new", full)
    with pytest.raises(SourceError, match="gone"):
        night(Store(str(tmp_path)), fail=SourceError("gone"))
    with pytest.raises(DiskFullError):  # a good night without a record would look like a missing one
        night(Store(str(tmp_path)))


def test_old_records_are_deleted_but_the_last_good_one(tmp_path: Path) -> None:
    index = Store(str(tmp_path))
    night(index)
    for _ in range(4):
        with pytest.raises(SourceError):
            night(index, fail=SourceError("gone"))
    _, good = last_nights(index)
    assert delete_old_nights(index, keep=2) == 2
    assert last_nights(index)[1] == good
    assert delete_old_nights(index, keep=2) == 0


def test_metrics_follow_the_nights(tmp_path: Path) -> None:
    index = Store(str(tmp_path))
    assert metrics(index) == {"lsr_prod_watch_up": 1}
    night(index)
    found = metrics(index)
    assert abs(found["lsr_prod_night_good_timestamp_seconds"] - time.time()) < 60
    assert found["lsr_prod_night_outcome/unchanged"] == 1
    with pytest.raises(PublicationError):
        night(index, gates=("documents",), fail=PublicationError("refused"))
    found = metrics(index)
    assert (found["lsr_prod_night_outcome/refused"], found["lsr_prod_night_outcome/unchanged"]) == (1, 0)
    assert (found["lsr_prod_night_gate_refused/documents"], found["lsr_prod_night_gate_refused/latency"]) == (1, 0)


def test_a_damaged_record_shows_no_old_values(tmp_path: Path) -> None:
    index = Store(str(tmp_path))
    night(index)
    (path,) = (tmp_path / "nights").iterdir()
    path.write_text("{")
    with pytest.raises(ArtifactError, match="is damaged"):
        last_nights(index)
    assert metrics(index) == {"lsr_prod_watch_up": 0}


@pytest.mark.long
def test_watch_serves_on_loopback_until_it_is_stopped(tmp_path: Path) -> None:
    night(Store(str(tmp_path)))
    command = [sys.executable, "-m", "lsr_prod", "watch", str(tmp_path), "--port", "0", "--seconds", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line
        with urllib.request.urlopen(line.split()[-3].rstrip(","), timeout=30) as answer:
            assert b'lsr_prod_night_outcome{outcome="unchanged"} 1.0' in answer.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], "give either INDEX or --config"),
        (["index", "--port", "70000"], "70000 is no port"),
        (["index", "--seconds", "nan"], "no number of seconds"),
        (["index", "--host", "256.0.0.1", "--port", "0"], "--port: 256.0.0.1:0"),
    ],
)
def test_wrong_options_end_in_one_line(argv: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    from lsr_prod.jobs.serving import watch

    try:
        code = watch.run(argv)
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert problem in capsys.readouterr().err
