"""Digests that name artifacts: sha256 of files and of canonical JSON."""

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from lsr_prod.errors import ArtifactError, DigestMismatchError, LsrError, StorageError

T = TypeVar("T")
_CHUNK = 1 << 20
_SHA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileDigest:
    """One file of an artifact: its path relative to the artifact, sha256 (hex) and size in bytes."""

    path: str
    sha256: str
    size: int

    def to_json(self) -> dict[str, Any]:
        """Return the form stored in manifests."""
        return {"path": self.path, "sha256": self.sha256, "size": self.size}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "FileDigest":
        """Read the form of ``to_json``."""
        file = cls(path=str(value["path"]), sha256=str(value["sha256"]), size=int(value["size"]))
        parts = file.path.split("/")
        if file.size < 0 or not is_sha256(file.sha256) or "\\" in file.path or {"", ".", ".."} & set(parts):
            raise ArtifactError(
                f"{file} is no file of an artifact; its manifest cannot be trusted: fetch or build the artifact again"
            )
        return file


def is_sha256(text: str) -> bool:
    """Return whether a text is a sha256 in hex, so that it can be part of a path."""
    return _SHA.fullmatch(text) is not None


def read_file(root: Path, file: FileDigest) -> bytes:
    """Return the content of a file under ``root``, read once and compared with its record."""
    path = root / file.path
    if not path.is_file():
        raise _missing(path)
    data = path.read_bytes()
    if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
        raise _differs(path)
    return data


def read_record(path: Path, parse: Callable[[Any], T], remedy: str) -> T:
    """Read a record from a JSON file."""
    if not path.is_file():
        raise ArtifactError(f"{path} is missing; {remedy}")
    data = path.read_bytes()
    with parsing(f"{path} is damaged", remedy):
        return parse(json.loads(data))


def field_values(record: Any) -> dict[str, Any]:
    """Return the fields of a data class by name; unlike ``asdict``, nested values stay as they are."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


_OF_PARSERS = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RuntimeError, OSError, struct.error)


@contextmanager
def parsing(problem: str, remedy: str, kind: type[LsrError] = ArtifactError) -> Iterator[None]:
    """Turn the errors of parsing a record or a Parquet file in the block into ``kind``; a ``StorageError`` stays."""
    try:
        yield
    except StorageError:
        raise
    except _OF_PARSERS as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
            raise StorageError(f"{problem} ({error}); check the disk or the service, then run again") from error
        bare = isinstance(error, LookupError | TypeError | AttributeError)  # these texts alone say little
        raise kind(f"{problem} ({f'{type(error).__name__}: ' * bare}{error}); {remedy}") from error


def canonical_json(value: Any) -> bytes:
    """Return UTF-8 JSON with sorted keys and no spaces: equal values have equal bytes. NaN raises ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def record_bytes(value: Any) -> bytes:
    """Return the bytes of a stored record: canonical JSON and a newline."""
    return canonical_json(value) + b"\n"


def digest_json(value: Any) -> str:
    """Return the sha256 (hex) of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def digest_path(path: Path) -> str:
    """Return the sha256 (hex) of a file, read in blocks of 1 MiB."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            sha.update(block)
    return sha.hexdigest()


def digest_files(root: Path, paths: Iterable[Path]) -> tuple[FileDigest, ...]:
    """Return the digests of ``paths``, named relative to ``root`` and sorted by path."""
    return tuple(
        FileDigest(path=path.relative_to(root).as_posix(), sha256=digest_path(path), size=path.stat().st_size)
        for path in sorted(paths)
    )


def digest_folder(folder: Path) -> tuple[FileDigest, ...]:
    """Return the digests of every file below ``folder``, sorted by path."""
    return digest_files(folder, (path for path in folder.rglob("*") if path.is_file()))


def verify_files(root: Path, files: Iterable[FileDigest]) -> None:
    """Compare files under ``root`` with their records."""
    for file in files:
        path = root / file.path
        if not path.is_file():
            raise _missing(path)
        if path.stat().st_size != file.size or digest_path(path) != file.sha256:
            raise _differs(path)


def _missing(path: Path) -> ArtifactError:
    return ArtifactError(f"{path} is missing; the artifact is incomplete: fetch or build it again")


def _differs(path: Path) -> DigestMismatchError:
    return DigestMismatchError(
        f"{path} differs from its recorded sha256; the artifact is damaged: fetch or build it again"
    )
