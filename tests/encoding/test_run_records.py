"""Records of encode runs: no run depends on them."""

import logging
from pathlib import Path

import pytest

from lsr_prod.encoding.run_records import RUNS_FOLDER, read_runs, save_run
from lsr_prod.storage import Store


def test_run_whose_record_cannot_be_written_does_not_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / RUNS_FOLDER
    blocked.parent.mkdir(parents=True)
    blocked.write_bytes(b"")
    with caplog.at_level(logging.WARNING, logger="lsr_prod"):
        save_run(Store(str(tmp_path), {}), "plan", 1, {"rows_in": 3})
    assert "record of the run not written" in caplog.text
    blocked.unlink()
    save_run(Store(str(tmp_path), {}), "plan", 1, {"rows_in": 3})
    assert read_runs(Store(str(tmp_path), {}), "plan")[0].summary == {"rows_in": 3}
