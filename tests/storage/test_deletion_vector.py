"""Deletion vectors against bytes that Apache Spark wrote, and in both directions."""

import os
import struct
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lsr_prod.encoding.tables.live_rows import keep_rows
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import (
    DeletionVector,
    _to_base85,
    check_vectors,
    decode_rows,
    deleted_rows,
    encode_rows,
    file_of,
    save_vectors,
)

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


def test_small_and_large_vectors_of_one_call_are_stored_apart(tmp_path):
    store = Store(str(tmp_path))
    deleted = {"small": np.array([1, 2], np.uint32), "large": np.arange(0, 90_000, 7, dtype=np.uint32)}
    vectors = save_vectors(store, deleted)
    assert {path: vector.storage for path, vector in vectors.items()} == {"small": "i", "large": "u"}
    for path, vector in vectors.items():
        assert deleted_rows(store, vector).tolist() == deleted[path].tolist()
        assert DeletionVector.from_delta(vector.to_delta()) == vector
    assert file_of(vectors["small"]) is None
    assert vectors["small"].unique_id == f"i{vectors['small'].data}"
    assert vectors["large"].unique_id == f"u{vectors['large'].data}@1"
    check_vectors(store, vectors.values())


def test_vector_outside_of_the_table_or_with_another_number_of_rows_is_an_error(tmp_path):
    store = Store(str(tmp_path))
    large = save_vectors(store, {"a": np.arange(0, 90_000, 7, dtype=np.uint32)})["a"]
    for outside in (replace(large, storage="p"), replace(large, data=f"../{large.data}")):
        with pytest.raises(ArtifactError, match="only files of the table are read"):
            file_of(outside)
    assert file_of(replace(large, data=f"ab{large.data}")) == f"ab/{file_of(large)}"
    with pytest.raises(ArtifactError, match=r"has 12858 rows instead of 3"):
        deleted_rows(store, replace(large, rows=3))
    store.delete(file_of(large) or "")
    with pytest.raises(ArtifactError, match=r"cannot be read .*; restore it"):
        deleted_rows(store, large)
    with pytest.raises(ArtifactError, match="is missing; restore it"):
        check_vectors(store, [large])


def test_frame_of_a_vector_has_its_size_and_its_checksum(tmp_path):
    store = Store(str(tmp_path))
    vector = save_vectors(store, {"a": np.arange(0, 90_000, 7, dtype=np.uint32)})["a"]
    path = tmp_path / (file_of(vector) or "")
    whole = path.read_bytes()
    for at in (1, len(whole) // 2, len(whole) - 1):  # the size, the bitmap, the checksum
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ArtifactError, match="is damaged; restore it"):
            deleted_rows(store, vector)
        with pytest.raises(ArtifactError, match="is damaged; restore it"):
            check_vectors(store, [vector])


def test_bitmaps_that_are_no_single_roaring_bitmap_are_errors():
    good = encode_rows(np.array([1, 70_000], np.uint32))
    for wrong in (bytes(4) + good[4:], good[:4] + (2).to_bytes(8, "little") + good[12:], good[:-1], b""):
        with pytest.raises(ArtifactError, match="a deletion vector"):
            decode_rows(wrong)
    assert decode_rows(good).tolist() == [1, 70_000]
    assert decode_rows(good[:4] + bytes(8)).tolist() == decode_rows(good[:4] + bytes(12)).tolist() == []
    assert decode_rows(encode_rows(np.empty(0, np.uint32))).tolist() == []
    dense = np.arange(5_000, dtype=np.uint32) * 2
    for rows in (dense, dense[:4096], dense[:4097]):
        assert decode_rows(encode_rows(rows)).tolist() == rows.tolist()


def test_rows_of_more_than_32_bits_are_an_error(tmp_path):
    large = encode_rows(np.array([1, 2], np.uint32))
    large = large[:12] + (1).to_bytes(4, "little") + large[16:]
    vector = DeletionVector("i", _to_base85(large + bytes(-len(large) % 4)), None, len(large), 2)
    with pytest.raises(ArtifactError, match="has 0 rows instead of 2"):
        deleted_rows(Store(str(tmp_path)), vector)


@pytest.mark.parametrize("containers", [3, 4])
def test_runs_have_offsets_if_there_are_four_containers(containers: int):
    header = b"".join(struct.pack("<HH", key, 2) for key in range(containers))
    offsets = bytes(4 * containers) if containers >= 4 else b""
    runs = struct.pack("<HHH", 1, 5, 2) * containers  # one run in each: 5, 6, 7
    bitmap = struct.pack("<I", 12347 | containers - 1 << 16) + bytes([15]) + header + offsets + runs
    rows = decode_rows(struct.pack("<IQI", 1681511377, 1, 0) + bitmap)
    assert rows.tolist() == [(key << 16) + value for key in range(containers) for value in (5, 6, 7)]
