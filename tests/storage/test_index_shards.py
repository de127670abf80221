"""Private folders of shards that are sent to an object store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lsr_prod.storage import Store
from lsr_prod.storage.index_shards import ShardDraft

REMOTE = Store("s3://lsr/index")
KILLED = """
import os
from lsr_prod.storage import Store
from lsr_prod.storage.index_shards import ShardDraft
draft = ShardDraft(Store("s3://lsr/index"), "a" * 64).__enter__()
os._exit(9)
"""


def test_scratch_of_dead_workers_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    (dead,) = tmp_path.iterdir()
    with ShardDraft(REMOTE, "b" * 64) as young:
        assert dead.exists()  # it could belong to a process that has not locked it yet
        for folder in (dead, young.folder):
            os.utime(folder, (1, 1))
        with ShardDraft(REMOTE, "c" * 64) as other:
            assert sorted(tmp_path.iterdir()) == sorted([young.folder, other.folder])
    assert list(tmp_path.iterdir()) == []
