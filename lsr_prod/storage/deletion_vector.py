"""Deletion vectors of Delta: the row numbers of a part that are deleted, as a Roaring bitmap.

The format is that of the Delta protocol (reader version 3, feature ``deletionVectors``): a ``RoaringBitmapArray`` with
the portable serialization of Roaring. Several vectors share a file, whose name is the digest of its content.
"""

import base64
import hashlib
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats.digests import parsing
from lsr_prod.storage.stores import Store

Rows = np.typing.NDArray[np.uint32]
"""Numbers of rows of a part, sorted."""

_MAGIC = 1681511377
_NO_RUNS, _RUNS = 12346, 12347  # cookies of the portable serialization
_NO_OFFSETS_BELOW = 4  # containers, in a bitmap with runs
_LARGEST_ARRAY = 4096  # values; a container with more is a bitmap of 2**16 bits
_INLINE_BYTES = 256
# Delta writes base 85 with the digits of ZeroMQ, Python with others.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)


_TEXT, _NUMBER = pa.string(), pa.int64()
VECTOR_TYPE = pa.struct(
    [("storage", _TEXT), ("data", _TEXT), ("offset", _NUMBER), ("size", _NUMBER), ("rows", _NUMBER)]
)
"""The fields of ``DeletionVector`` as a type of Arrow."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where the deleted rows of a part are stored, in the terms of the Delta protocol."""

    storage: str
    data: str
    offset: int | None
    size: int
    rows: int

    def to_delta(self) -> dict[str, Any]:
        """Return the object that an action of a Delta commit contains."""
        place = {} if self.offset is None else {"offset": self.offset}
        fields = {"storageType": self.storage, "pathOrInlineDv": self.data, "sizeInBytes": self.size}
        return {**fields, **place, "cardinality": self.rows}

    @classmethod
    def from_delta(cls, fields: Mapping[str, Any]) -> "DeletionVector":
        """Read the form of ``to_delta``."""
        names = ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")
        storage, data, size, rows = (fields[name] for name in names)
        return cls(storage, data, fields.get("offset"), size, rows)

    @property
    def unique_id(self) -> str:
        """The name that distinguishes states of one part, as in the protocol: (path, unique id) is a logical file."""
        return f"{self.storage}{self.data}" + ("" if self.offset is None else f"@{self.offset}")


def save_vectors(store: Store, deleted: Mapping[str, Rows]) -> dict[str, DeletionVector]:
    """Store the deleted rows of parts: small vectors inline, all others in one file."""
    encoded = {path: encode_rows(rows) for path, rows in sorted(deleted.items())}
    inside = {path for path, data in encoded.items() if len(data) <= _INLINE_BYTES}
    content, offsets = bytearray(b"\x01"), {}
    for path, data in encoded.items():
        if path not in inside:
            offsets[path] = len(content)
            content += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    name = _save(store, bytes(content)) if offsets else None
    vectors = {}
    for path, data in encoded.items():
        size, rows = len(data), len(deleted[path])
        if name is None or path in inside:
            vectors[path] = DeletionVector("i", _to_base85(data + bytes(-size % 4)), None, size, rows)
        else:
            vectors[path] = DeletionVector("u", _to_base85(name.bytes), offsets[path], size, rows)
    return vectors


def _save(store: Store, content: bytes) -> uuid.UUID:
    """Store vectors in a file that is named by its content, and return the name."""
    number = 0
    while True:
        name = uuid.UUID(bytes=hashlib.sha256(content + bytes(number)).digest()[:16])
        if store.put_new(_name(name), content):
            return name
        try:
            store.touch(_name(name))  # a vacuum must not delete a file that is about to be committed
        except FileNotFoundError:
            continue  # the vacuum was faster
        if store.get(_name(name)) == content:
            return name
        number += 1  # a damaged file has this name; it is not replaced, see ``part.write_part``


def file_of(vector: DeletionVector) -> str | None:
    """Return the path of the file that contains a vector; None if it is inline."""
    if vector.storage == "i":
        return None
    prefix, encoded = vector.data[:-20], vector.data[-20:]
    if vector.storage != "u" or not (prefix.isalnum() or not prefix):
        raise ArtifactError(f"a deletion vector is stored as {vector.storage!r}; only files of the table are read")
    name = _name(uuid.UUID(bytes=_from_base85(encoded)))
    return f"{prefix}/{name}" if prefix else name


def deleted_rows(store: Store, vector: DeletionVector) -> Rows:
    """Return the numbers of the deleted rows of a part: uint32, sorted."""
    path = file_of(vector)
    if path is None:
        data = _from_base85(vector.data)[: vector.size]
    else:
        with parsing(f"{store.uri}/{path} cannot be read", "restore it"):
            framed = store.read_range(path, vector.offset or 0, vector.size + 8)
        data = _unframed(store, path, framed, vector.size)
    rows = decode_rows(data)
    if len(rows) != vector.rows:
        raise ArtifactError(f"a deletion vector of {store.uri} has {len(rows)} rows instead of {vector.rows}")
    return rows


def check_vectors(store: Store, vectors: Iterable[DeletionVector]) -> None:
    """Check that vectors are complete in the store; each file is read once."""
    by_path: dict[str, list[DeletionVector]] = {}
    for vector in vectors:
        if path := file_of(vector):
            by_path.setdefault(path, []).append(vector)
    for path, mine in by_path.items():
        content = store.get(path)
        if content is None:
            raise ArtifactError(f"{store.uri}/{path} is missing; restore it")
        for vector in mine:
            start = vector.offset or 0
            _unframed(store, path, content[start : start + vector.size + 8], vector.size)


def _unframed(store: Store, path: str, framed: bytes, size: int) -> bytes:
    data = framed[4 : 4 + size]
    if framed[:4] != struct.pack(">I", size) or framed[4 + size :] != struct.pack(">I", zlib.crc32(data)):
        raise ArtifactError(f"{store.uri}/{path} is damaged; restore it")
    return data


def encode_rows(rows: Rows) -> bytes:
    """Return row numbers (uint32, sorted, each once) as a ``RoaringBitmapArray`` with one bitmap."""
    keys, starts = np.unique(rows >> 16, return_index=True)
    groups = np.split((rows & 0xFFFF).astype("<u2"), starts[1:]) if len(keys) else []
    containers = [_container(values) for values in groups]
    header = b"".join(struct.pack("<HH", key, len(values) - 1) for key, values in zip(keys, groups, strict=True))
    first = 8 + len(header) + 4 * len(containers)
    offsets = first + np.cumsum([0, *(len(data) for data in containers)])[:-1]
    bitmap = struct.pack("<II", _NO_RUNS, len(containers)) + header + offsets.astype("<u4").tobytes()
    return struct.pack("<IQI", _MAGIC, 1, 0) + bitmap + b"".join(containers)


def decode_rows(data: bytes) -> Rows:
    """Return the row numbers of a ``RoaringBitmapArray``, also of one that another program wrote."""
    with parsing("a deletion vector is damaged", "restore it"):
        magic, count = struct.unpack_from("<IQ", data)
        if magic != _MAGIC or count > 1:
            raise ArtifactError(f"a deletion vector has magic {magic} and {count} bitmaps instead of {_MAGIC} and one")
        return _bitmap(data[16:]) if count and data[12:16] == bytes(4) else np.empty(0, np.uint32)


def _container(values: np.typing.NDArray[np.uint16]) -> bytes:
    if len(values) <= _LARGEST_ARRAY:
        return values.tobytes()
    bits = np.zeros(1 << 16, np.bool_)
    bits[values] = True
    return np.packbits(bits, bitorder="little").tobytes()


def _bitmap(data: bytes) -> Rows:
    (cookie,) = struct.unpack_from("<I", data)
    has_runs = cookie & 0xFFFF == _RUNS
    if has_runs:
        count, at = (cookie >> 16) + 1, 4
        flags = np.unpackbits(np.frombuffer(data, np.uint8, -(-count // 8), at), bitorder="little")[:count]
        at += -(-count // 8)
    else:
        (count,) = struct.unpack_from("<I", data, 4)
        flags, at = np.zeros(count, np.uint8), 8
    header = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2)
    at += 4 * count + (0 if has_runs and count < _NO_OFFSETS_BELOW else 4 * count)
    found = [np.empty(0, np.uint32)]
    for (key, last), is_run in zip(header.tolist(), flags.tolist(), strict=True):
        if is_run:
            (runs,) = struct.unpack_from("<H", data, at)
            pairs = np.frombuffer(data, "<u2", 2 * runs, at + 2).reshape(-1, 2).astype(np.uint32)
            values, size = np.concatenate([np.arange(a, a + n + 1) for a, n in pairs.tolist()]), 2 + 4 * runs
        elif last < _LARGEST_ARRAY:
            values, size = np.frombuffer(data, "<u2", last + 1, at), 2 * (last + 1)
        else:
            bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, at), bitorder="little")
            values, size = np.flatnonzero(bits), 8192
        found.append(values.astype(np.uint32) + np.uint32(key << 16))
        at += size
    return np.concatenate(found)


def _name(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"


def _to_base85(data: bytes) -> str:
    return base64.b85encode(data).translate(_TO_Z85).decode()


def _from_base85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_FROM_Z85))
