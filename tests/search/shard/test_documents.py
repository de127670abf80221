"""Ids, stored fields and attributes read from the mapped file, and detection of damaged bytes."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.search.shard.documents import Documents
from lsr_prod.storage.formats.digests import digest_files
from lsr_prod.storage.formats.index_format import attribute_column
from lsr_prod.storage.formats.pages import PAGE_DIGESTS_FILE, MappedFiles, page_digests
from lsr_prod.storage.formats.shard_format import BATCH_ROWS, DOCUMENTS_FILE
from lsr_prod.storage.formats.stored_values import arrow_type

N = 2 * BATCH_ROWS + 100
COLUMNS = {"text": "text", "year": "attribute.year", "at": "attribute.at"}


def row(i: int) -> dict[str, object]:
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i)
    return {
        "doc_id": f"é{i:06d}",
        "text": None if i % 7 == 0 else "" if i % 11 == 0 else f"text {i} \U0001f600",
        "attribute.year": None if i % 5 == 0 else i - 50,
        "attribute.at": moment,
    }


def write(folder: Path, count: int = N, batch_rows: int = BATCH_ROWS) -> None:
    strings = [pa.field("doc_id", pa.large_string()), pa.field("text", pa.large_string())]
    typed = [("attribute.year", arrow_type("int64")), ("attribute.at", arrow_type("timestamp"))]
    table = pa.Table.from_pylist([row(i) for i in range(count)], pa.schema([*strings, *typed]))
    with pa.OSFile(str(folder / DOCUMENTS_FILE), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        for start in range(0, count, batch_rows):
            file.write_table(table.slice(start, batch_rows).combine_chunks())
    (folder / PAGE_DIGESTS_FILE).write_bytes(page_digests(folder, [DOCUMENTS_FILE]))


def open_documents(folder: Path, count: int = N, *, lazy: bool = True) -> Documents:
    files = digest_files(folder, [folder / DOCUMENTS_FILE, folder / PAGE_DIGESTS_FILE])
    return Documents(MappedFiles(folder, files, [DOCUMENTS_FILE], lazy=lazy), count)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("documents")
    write(path)
    return path


@pytest.mark.parametrize("lazy", [True, False])
def test_documents_are_read_as_written(folder, lazy):
    documents = open_documents(folder, lazy=lazy)
    assert documents.attributes == {"year": "int64", "at": "timestamp"}
    for i in [0, 1, 5, 7, 11, BATCH_ROWS - 1, BATCH_ROWS, 2 * BATCH_ROWS - 1, 2 * BATCH_ROWS, N - 1]:
        assert documents.doc_id(i) == row(i)["doc_id"]
        assert documents.fields(i, COLUMNS) == {name: row(i)[column] for name, column in COLUMNS.items()}
    documents.verify_columns(["doc_id", *map(attribute_column, documents.attributes)])


@pytest.mark.parametrize(("count", "batch_rows"), [(N - 1, BATCH_ROWS), (N + 1, BATCH_ROWS), (N, 1000)])
def test_wrong_document_count_or_batch_size_is_rejected(tmp_path, count, batch_rows):
    write(tmp_path, batch_rows=batch_rows)
    with pytest.raises(ArtifactError, match=f"does not hold {count} documents"):
        open_documents(tmp_path, count)


def test_file_without_documents_has_no_batches(tmp_path):
    write(tmp_path, 0)
    assert open_documents(tmp_path, 0).batches == ()


@pytest.mark.parametrize("content", [b"", b"ARROW1\0\0", b"\0" * 5000, b"ARROW1\0\0" + b"\xff" * 100 + b"ARROW1"])
@pytest.mark.parametrize("lazy", [True, False])
def test_invalid_arrow_file_is_rejected(tmp_path, content, lazy):
    (tmp_path / DOCUMENTS_FILE).write_bytes(content)
    (tmp_path / PAGE_DIGESTS_FILE).write_bytes(page_digests(tmp_path, [DOCUMENTS_FILE]))
    with pytest.raises(ArtifactError, match=r"docs\.arrow cannot be read"):
        open_documents(tmp_path, lazy=lazy)


def test_message_before_batch_is_verified_before_use(folder, tmp_path):
    # The message holds the positions of the columns and lies in the middle of the file.
    data = (folder / DOCUMENTS_FILE).read_bytes()
    digests = (folder / PAGE_DIGESTS_FILE).read_bytes()
    one, other = (batch.column("doc_id").buffers()[1].address for batch in open_documents(folder).batches[:2])
    start = data.find(row(0)["doc_id"].encode())
    found = data.rfind(b"\xff\xff\xff\xff", 0, start + other - one)
    assert (1 << 16) < found < len(data) - (1 << 16)
    for byte in range(found, found + 400, 7):
        (tmp_path / DOCUMENTS_FILE).write_bytes(data[:byte] + bytes([data[byte] ^ 8]) + data[byte + 1 :])
        (tmp_path / PAGE_DIGESTS_FILE).write_bytes(digests)
        with pytest.raises(ArtifactError, match="is damaged at byte"):
            open_documents(tmp_path)
