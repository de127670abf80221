"""A run on a corpus that has not changed lists it: no file of the source, part of a table or marker is read."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.encoding import encode_corpus
from lsr_prod.storage import Store
from lsr_prod.storage.remote import store_counts
from tests.encoding.test_incremental_encode import deployment

pytestmark = pytest.mark.usefixtures("ray_local")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of objects that this process reads from stores."""
    names: list[str] = []
    for method in ("get", "open_reader", "read_range"):
        original = getattr(Store, method)

        def recorded(self: Store, name: str, *args: Any, original: Any = original, **more: Any) -> Any:
            names.append(f"{self.uri}/{name}")
            return original(self, name, *args, **more)

        monkeypatch.setattr(Store, method, recorded)
    return names


def test_unchanged_corpus_is_listed_only(
    tmp_path: Path, tiny_bundle: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
):
    folder, table = tmp_path / "corpus", tmp_path / "table"
    folder.mkdir()
    for file in range(6):
        lines = [{"_id": f"d{i}", "title": "t", "text": f"quick fox {i}"} for i in range(file * 5, file * 5 + 5)]
        (folder / f"{file}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\nnot json\n")
        os.utime(folder / f"{file}.jsonl", (1e9, 1e9))  # a file that was written just now would be hashed again
    given = deployment(tiny_bundle, table, source={"paths": [str(folder)]}, max_bad_fraction=0.5, wave_megabytes=1)
    first = encode_corpus(given)
    read.clear()
    before = store_counts()
    monkeypatch.setattr("lsr_prod.cluster.tasks.ray.remote", None)  # no work for workers
    monkeypatch.setattr("lsr_prod.storage.digest_cache.hashlib.file_digest", None)  # no file of the source is read
    monkeypatch.setattr("lsr_prod.encoding.actors.places.wait_for_room", None)  # nor a new node
    again = encode_corpus(given)
    assert [name for name in read if name.endswith(".parquet") and "/plans/" not in name] == []
    assert [name for name in read if "/done/" in name] == []
    shown = ("documents", "rows_in", "rows_out", "quarantined_by_reason", "table_digest", "table_version")
    assert [getattr(again, name) for name in shown] == [getattr(first, name) for name in shown]
    assert (store_counts() - before).bytes_read < 50_000
