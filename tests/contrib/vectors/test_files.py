import gzip

import pytest

from lsr_prod.errors import StorageError
from lsr_prod_contrib.vectors.jsonl import new_file


def test_file_is_complete_or_absent(tmp_path):
    path = tmp_path / "folder" / "a.jsonl"

    def write_half() -> None:
        with new_file(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert list(path.parent.iterdir()) == []
    with new_file(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert [one.name for one in path.parent.iterdir()] == ["a.jsonl"]


def test_existing_file_is_not_replaced(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(StorageError, match="exists already"), new_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"


def test_gz_is_compressed_and_equal_bytes_make_equal_files(tmp_path):
    for name in ("a.gz", "b.gz"):
        with new_file(tmp_path / name) as file:
            file.write(b"the same")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"the same"
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
