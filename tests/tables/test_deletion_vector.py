"""Deletion vectors against bytes that Apache Spark wrote, and in both directions."""

import os

import numpy as np
import pyarrow as pa
import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.tables.deletion_vector import (
    DeletionVector,
    decode_rows,
    deleted_rows,
    encode_rows,
    file_of,
    save_vectors,
)
from lsr_prod.tables.live_rows import keep_rows

# File and descriptor of the table ``table-with-dv-small`` in the test data of delta-kernel-rs.
_SPARK_FILE = bytes.fromhex(
    "0100000024d1d339640100000000000000000000003a300000010000000000010010000000000009002a671846"
)
_SPARK = DeletionVector("u", "vBn[lx{q8@P<9BNH/isA", 1, 36, 2)
_SPARK_PATH = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"


def test_vector_of_spark_is_read_and_written_bit_for_bit(tmp_path):
    (tmp_path / _SPARK_PATH).write_bytes(_SPARK_FILE)
    assert file_of(_SPARK) == _SPARK_PATH
    assert deleted_rows(Store(str(tmp_path)), _SPARK).tolist() == [0, 9]
    assert encode_rows(np.array([0, 9], np.uint32)) == _SPARK_FILE[5:-4]


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.1, 0.5, 1.0])
def test_rows_survive_storage(tmp_path, share):
    rows = np.flatnonzero(np.random.default_rng(0).random(300_000) <= share).astype(np.uint32)
    store = Store(str(tmp_path))
    vectors = save_vectors(store, {"bucket=0/a": rows, "bucket=0/b": rows[:3]})
    assert np.array_equal(deleted_rows(store, vectors["bucket=0/a"]), rows)
    assert np.array_equal(deleted_rows(store, vectors["bucket=0/b"]), rows[:3])
    assert vectors["bucket=0/b"].storage == "i"
    assert all(DeletionVector.from_delta(one.to_delta()) == one for one in vectors.values())
    assert save_vectors(store, {"bucket=0/a": rows, "bucket=0/b": rows[:3]}) == vectors
    kept = keep_rows(pa.table({"row": np.arange(300_000)}), rows)
    assert np.array_equal(kept["row"], np.setdiff1d(np.arange(300_000), rows))


def test_runs_of_other_writers_are_read():
    # One run container with rows 5..14, as RoaringBitmap.runOptimize writes it.
    bitmap = bytes.fromhex("3b3000000100000900010005000900")
    array = bytes.fromhex("d1d33964010000000000000000000000") + bitmap
    assert decode_rows(array).tolist() == list(range(5, 15))


def test_damage_is_an_error(tmp_path):
    store = Store(str(tmp_path))
    (vector,) = save_vectors(store, {"a": np.arange(0, 100_000, 7, dtype=np.uint32)}).values()
    path = tmp_path / (file_of(vector) or "")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        deleted_rows(store, vector)


def test_saved_vectors_replace_no_damaged_file_and_touch_an_old_one(tmp_path):
    store, rows = Store(str(tmp_path)), {"a": np.arange(0, 100_000, 7, dtype=np.uint32)}
    first = save_vectors(store, rows)["a"]
    path = tmp_path / (file_of(first) or "")
    os.utime(path, (0, 0))
    assert save_vectors(store, rows)["a"] == first
    assert path.stat().st_mtime > 0  # a vacuum must not delete it
    path.write_bytes(b"damaged")
    second = save_vectors(store, rows)["a"]
    assert file_of(second) != file_of(first)
    assert np.array_equal(deleted_rows(store, second), rows["a"])
