"""Ids, stored fields and attributes of a shard's documents, read from the mapped Arrow file."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats import digests, index_format, pages, shard_format, stored_values

_MAGIC = b"ARROW1"
_HEAD, _TAIL = struct.Struct("<ii"), struct.Struct("<i6s")


def damaged_id(folder: Path) -> ArtifactError:
    """Return the error for an id that is no UTF-8, in the files of a shard or of an index."""
    return ArtifactError(f"{folder} has an id that is damaged; open with verify=True to see the file")


class Documents:
    """The file ``docs.arrow`` of a shard."""

    def __init__(self, files: pages.MappedFiles, documents: int) -> None:
        """Read the footer."""
        self._files = files
        raw = files.bytes_of(shard_format.DOCUMENTS_FILE)
        place = files.folder / shard_format.DOCUMENTS_FILE
        with digests.parsing(f"{place} cannot be read", "build the shard again"):
            self._verify_metadata(raw.data)
            reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(raw)))
            self._schema = reader.schema
            self.batches = tuple(reader.get_batch(i) for i in range(reader.num_record_batches))
        rows = [batch.num_rows for batch in self.batches]
        if sum(rows) != documents or any(count != shard_format.BATCH_ROWS for count in rows[:-1]):
            raise ArtifactError(f"{place} does not hold {documents} documents; build the shard again")
        self._verified_ids = bytearray(len(self.batches))
        # Offsets and text by batch: slicing them is twice as fast as Arrow scalars.
        buffers = (batch.column("doc_id").buffers() for batch in self.batches)
        self._ids = tuple((memoryview(offsets).cast("q"), memoryview(text or b"")) for _, offsets, text in buffers)

    def _verify_metadata(self, raw: memoryview) -> None:
        """Verify the metadata that locates the columns: the footer, and the message before every record batch.

        The file consists of a magic string, messages (-1, length, metadata, columns) until one of length 0, the footer,
        its length, and the magic string.
        """
        verify, end = self._files.verify, len(raw)
        verify(shard_format.DOCUMENTS_FILE, end - _TAIL.size, end)
        length, magic = _TAIL.unpack(raw[-_TAIL.size :])
        if magic != _MAGIC or not 0 <= length < end:
            raise ValueError("it does not end like an Arrow file")
        verify(shard_format.DOCUMENTS_FILE, end - _TAIL.size - length, end)
        place = 8
        verify(shard_format.DOCUMENTS_FILE, 0, place + _HEAD.size)
        while True:
            verify(shard_format.DOCUMENTS_FILE, place, place + _HEAD.size)
            continued, length = _HEAD.unpack_from(raw, place)
            if continued != -1 or length < 0:
                raise ValueError(f"there is no message at byte {place}")
            if length == 0:
                return
            verify(shard_format.DOCUMENTS_FILE, place, place + _HEAD.size + length)
            columns = pa.ipc.read_message(pa.py_buffer(raw[place:])).body
            place += _HEAD.size + length + (columns.size if columns is not None else 0)

    def doc_id(self, ordinal: int) -> str:
        """Return the id of a document."""
        batch, row = divmod(ordinal, shard_format.BATCH_ROWS)
        if not self._verified_ids[batch]:
            self._verify_column(self.batches[batch].column("doc_id"))
            self._verified_ids[batch] = 1
        offsets, text = self._ids[batch]
        try:
            return str(text[offsets[row] : offsets[row + 1]], "utf-8")
        except UnicodeDecodeError as error:  # only a file that is not verified
            raise damaged_id(self._files.folder) from error

    def doc_ids(self, ordinals: Sequence[int]) -> list[str]:
        """Return the ids of documents, as ``doc_id`` does, in half its time."""
        found, verified, parts = [], self._verified_ids, self._ids
        try:
            for ordinal in ordinals:
                batch = ordinal // shard_format.BATCH_ROWS
                if not verified[batch]:
                    found.append(self.doc_id(ordinal))
                    continue
                offsets, text = parts[batch]
                row = ordinal - batch * shard_format.BATCH_ROWS
                found.append(str(text[offsets[row] : offsets[row + 1]], "utf-8"))
        except UnicodeDecodeError as error:
            raise damaged_id(self._files.folder) from error
        return found

    @property
    def native(self) -> tuple[list[tuple[int, memoryview, memoryview]], bytearray]:
        """Ids by batch, as the kernels read them: their number, offsets and text; and the flags of verified batches."""
        batches = zip(self.batches, self._ids, strict=True)
        return [(batch.num_rows, offsets.cast("B"), text) for batch, (offsets, text) in batches], self._verified_ids

    def fields(self, ordinal: int, columns: Mapping[str, str]) -> Mapping[str, Any]:
        """Return stored fields of a document."""
        batch, row = divmod(ordinal, shard_format.BATCH_ROWS)
        found = {}
        for name, column_name in columns.items():
            column = self.batches[batch].column(column_name)
            self._verify_row(column, row)
            found[name] = column[row].as_py()
        return found

    @property
    def attributes(self) -> Mapping[str, stored_values.AttributeType]:
        """Type of every attribute."""
        return index_format.attribute_types(self._schema)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a whole column, which is empty in a shard without documents; see ``verify_columns``."""
        return pa.chunked_array([batch.column(name) for batch in self.batches], self._schema.field(name).type)

    def verify_columns(self, names: Sequence[str]) -> None:
        """Verify whole columns, for computations over them."""
        for batch in self.batches:
            for name in names:
                self._verify_column(batch.column(name))

    def _verify_column(self, column: pa.Array) -> None:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                self._files.verify_buffer(shard_format.DOCUMENTS_FILE, buffer.address, buffer.size)

    def _verify_row(self, column: pa.Array, row: int) -> None:
        """Verify the pages of one value of a column."""
        if not pa.types.is_large_string(column.type):
            self._verify_column(column)
            return
        valid, offsets, text = column.buffers()
        if valid is not None:
            self._files.verify_buffer(shard_format.DOCUMENTS_FILE, valid.address + row // 8, 1)
        self._files.verify_buffer(shard_format.DOCUMENTS_FILE, offsets.address + 8 * row, 16)
        start, stop = memoryview(offsets).cast("q")[row : row + 2]
        if text is not None:
            self._files.verify_buffer(shard_format.DOCUMENTS_FILE, text.address + start, stop - start)
