from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lsr_prod.encoding.tables import open_table, write_part
from lsr_prod.encoding.tables.live_rows import part_digest, total_live_rows
from lsr_prod.encoding.tables.part import combine_digests, digest_in_name
from lsr_prod.encoding.tables.sparse_table import (
    PROTOCOL_FOLDER,
    check_first_plan,
    check_table,
    committed_files,
    create_sparse_table,
    files_of_bucket,
    other_setting,
    table_digest,
)
from lsr_prod.errors import ArtifactError, ConfigError, FormatVersionError, LineageError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import TableProperties, sparse_schema
from tests.encoding.made_tables import newest
from tests.encoding.tables.deletions import delete_ids

PROPERTIES = TableProperties("b" * 64, "v" * 64, 0.01, 8, 16, 2, ("title",), 9)
ROWS = [
    {
        "doc_id": f"d{i}",
        "bucket": i % 2,
        "terms": list(range(i)),
        "impacts": [i + 1] * i,
        "content_hash": "h",
        "content_key": 0,
        "source_file": 0,
    }
    for i in range(9)
]


def digest_of(folder: Path, *commits: Sequence[dict]) -> str:
    create_sparse_table(Store(str(folder)), PROPERTIES, "p")
    for rows in commits:
        table = pa.Table.from_pylist(list(rows), schema=sparse_schema(("title",)))
        write_deltalake(folder, table, mode="append")
    return table_digest(str(folder))


def test_digest_is_independent_of_order_and_files(tmp_path: Path):
    digest = digest_of(tmp_path / "a", ROWS)
    assert digest_of(tmp_path / "b", ROWS[::-1]) == digest
    assert digest_of(tmp_path / "c", ROWS[5:], ROWS[:2], ROWS[2:5]) == digest
    assert digest_of(tmp_path / "d", [{**row, "title": "stored only"} for row in ROWS]) == digest
    DeltaTable(tmp_path / "c").optimize.compact()
    assert table_digest(str(tmp_path / "c")) == digest
    assert len(digest) == 64


@pytest.mark.parametrize(
    "change", [{"doc_id": "e8"}, {"terms": [7, 6, 5, 4, 3, 2, 1, 0]}, {"impacts": [8] * 8}, {"content_hash": "i"}]
)
def test_changed_row_changes_the_digest(tmp_path: Path, change: dict):
    digest = digest_of(tmp_path / "a", ROWS)
    assert digest_of(tmp_path / "b", [*ROWS[:-1], {**ROWS[-1], **change}]) != digest


def test_missing_or_duplicated_row_changes_the_digest(tmp_path: Path):
    digests = [
        digest_of(tmp_path / "empty"),
        digest_of(tmp_path / "all", ROWS),
        digest_of(tmp_path / "lost", ROWS[1:]),
        digest_of(tmp_path / "doubled", ROWS, ROWS[:1]),
        digest_of(tmp_path / "thrice", ROWS, ROWS[:1], ROWS[:1]),
    ]
    assert len(set(digests)) == len(digests)
    assert table_digest(str(tmp_path / "doubled"), version=1) == digests[1]


def test_folder_without_a_table_gives_none(tmp_path: Path):
    store = Store(str(tmp_path / "t"))
    assert open_table(store) is None
    assert check_table(store, PROPERTIES) is None
    store.put_new(f"{PROTOCOL_FOLDER}/plans/p.json", b"{}")  # of an attempt that died before it created the table
    assert check_table(store, PROPERTIES) is None
    store.put_new("photo.jpg", b"")
    with pytest.raises(ConfigError, match=r"contains photo\.jpg and is not a table"):
        check_table(store, PROPERTIES)


def test_draft_of_an_interrupted_creation_is_not_a_foreign_file(tmp_path: Path):
    draft = tmp_path / "table" / "_delta_log" / f".{0:020d}.json.{'0f' * 16}.tmp"
    draft.parent.mkdir(parents=True)
    draft.touch()
    assert check_table(Store(str(tmp_path / "table")), PROPERTIES) is None


def test_table_keeps_the_impact_step_of_the_attempt_that_created_it(tmp_path: Path):
    store = Store(str(tmp_path / "t"))
    create_sparse_table(store, PROPERTIES, "p")
    again = create_sparse_table(store, replace(PROPERTIES, impact_step=9.0), "p")
    assert again.version == 0
    assert check_table(store, replace(PROPERTIES, impact_step=9.0)) == PROPERTIES
    assert files_of_bucket(committed_files(again), 0) == []


def test_concurrent_attempts_create_one_table(tmp_path: Path):
    def make(step: int) -> str:
        properties = replace(PROPERTIES, impact_step=step / 64)
        return create_sparse_table(Store(str(tmp_path / "t")), properties, "p").properties["lsr_prod.impact_step"]

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(make, range(1, 7)))) == 1


def test_second_of_two_first_plans_is_refused(tmp_path: Path):
    store = Store(str(tmp_path / "t"))
    check_first_plan(create_sparse_table(store, PROPERTIES, "p"), "p")
    with pytest.raises(ConfigError, match=r"encode\.table: .* by another run, with another source"):
        check_first_plan(create_sparse_table(store, PROPERTIES, "q"), "q")


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"bundle_digest": "c" * 64}, LineageError, "made by bundle bbbb"),
        ({"vocabulary_sha256": "w" * 64}, LineageError, "made by bundle"),
        ({"store_k": 8}, ConfigError, r"encode\.store_k: 8 is not what .* is made with, 16; set 16, or"),
        ({"buckets": 3}, ConfigError, r"encode\.buckets: 3 is not what .* is made with, 2; set 2, or"),
        (
            {"stored_fields": ("é",)},
            ConfigError,
            r"source\.stored_fields: \[.é.\] is not .* with, \[.title.\]; set \[.title",
        ),
    ],
)
def test_table_with_other_settings_is_refused(tmp_path: Path, change: dict, error: type[Exception], problem: str):
    store = Store(str(tmp_path / "t"))
    create_sparse_table(store, PROPERTIES, "p")
    with pytest.raises(error, match=problem):
        check_table(store, replace(PROPERTIES, **change))


def test_setting_that_the_table_leaves_open_has_to_be_removed():
    error = other_setting("encode.max_length", Store("/t"), 9, None)
    assert error.problem == "9 is not what /t is made with, null"
    assert error.remedy == "remove the setting, or give a new encode.table"


def test_summands_of_files_add_up_to_the_digest(tmp_path: Path):
    digest = digest_of(tmp_path / "a", ROWS[5:], ROWS[:2], ROWS[2:5])
    store = Store(str(tmp_path / "a"))
    files = newest(store).files()
    assert len(files) > 3
    assert combine_digests(part_digest(store, file) for file in reversed(files)) == digest
    assert {digest_in_name(file.path) for file in files} == {None}  # another program wrote them
    assert combine_digests([]) == digest_of(tmp_path / "empty") == "0" * 64
    with pytest.raises(ArtifactError, match="is not a table"):
        table_digest(str(tmp_path / "none"))


def test_delta_table_of_another_program_is_refused(tmp_path: Path):
    write_deltalake(tmp_path / "t", pa.table({"x": [1]}))
    with pytest.raises(FormatVersionError, match="not written by lsr_prod"):
        check_table(Store(str(tmp_path / "t")), PROPERTIES)


@pytest.mark.parametrize("named", [True, False])
def test_digest_of_a_table_with_deleted_rows_is_that_of_a_table_without_them(tmp_path: Path, named: bool):
    store = Store(str(tmp_path / "a"))
    table = create_sparse_table(store, PROPERTIES, "p")
    rows = pa.Table.from_pylist(ROWS, schema=sparse_schema(("title",))).drop(["bucket"])
    part = write_part(store, "bucket=0", rows, "plan/0")
    if not named:
        assert store.put_new("bucket=0/foreign.parquet", store.get(part.path) or b"")
        part = replace(part, path="bucket=0/foreign.parquet")
    table.commit([(part, {"bucket": "0"})], [], app="p", version=0, epoch=1)
    delete_ids(store, ["d1", "d8"])
    delete_ids(store, ["d5"])
    wanted = digest_of(tmp_path / "b", [row for row in ROWS if row["doc_id"] not in ("d1", "d5", "d8")])
    assert table_digest(store.uri) == table_digest(store.uri, verify=True) == wanted
    assert table_digest(store.uri, version=1) == digest_of(tmp_path / "c", ROWS)
    assert total_live_rows(newest(store).file_table()) == 6
