import errno
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError, StorageError
from lsr_prod.storage.formats.digests import (
    FileDigest,
    canonical_json,
    digest_files,
    digest_json,
    parsing,
    verify_files,
)


def test_equal_values_have_equal_bytes() -> None:
    assert canonical_json({"b": 1, "a": ["ä"]}) == canonical_json({"a": ["ä"], "b": 1}) == '{"a":["ä"],"b":1}'.encode()
    assert digest_json({"b": 1, "a": 2}) == digest_json({"a": 2, "b": 1}) != digest_json({"a": 2, "b": 2})


def test_canonical_json_refuses_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_verify_files_finds_flipped_bit_and_missing_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "a"
    path.write_bytes(b"abc")
    files = digest_files(tmp_path, [path])
    verify_files(tmp_path, files)
    assert FileDigest.from_json(files[0].to_json()) == files[0]
    path.write_bytes(b"abb")
    with pytest.raises(DigestMismatchError):
        verify_files(tmp_path, files)
    path.unlink()
    with pytest.raises(ArtifactError, match="missing"):
        verify_files(tmp_path, files)


def test_what_cannot_be_read_now_is_not_called_damaged() -> None:
    with pytest.raises(StorageError, match="503"), parsing("the record is damaged", "delete it"):
        raise StorageError("the store answers 503; run again")
    with pytest.raises(StorageError, match=r"Input/output error.*run again"), parsing("it is damaged", "delete it"):
        raise OSError(errno.EIO, "Input/output error")
    for error in (
        FileNotFoundError(2, "gone"),
        pa.ArrowNotImplementedError("65 bits"),
        OSError("Couldn't deserialize thrift"),
        pa.ArrowInvalid("no footer"),
        KeyError("format"),
    ):
        expected = pytest.raises(ArtifactError, match=r"the record is damaged \(.*\); delete it")
        with expected, parsing("the record is damaged", "delete it"):
            raise error
