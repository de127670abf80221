import hashlib
import itertools
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import CsvSettings, EncodeSettings, SourceSettings
from lsr_prod.corpus.pinned_file import Slice, SourceFile
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, make_plan
from lsr_prod.encoding.plans.increment import plan_increment
from lsr_prod.encoding.plans.plan_header import PLAN_SETTINGS, ROW_SETTINGS
from lsr_prod.encoding.plans.successors import (
    file_locations,
    load_plan,
    plan_objects,
    read_record,
    record_name,
    save_plan,
)
from lsr_prod.encoding.tables.sparse_table import PROTOCOL_FOLDER
from lsr_prod.errors import ArtifactError, DigestMismatchError, FormatVersionError
from lsr_prod.storage import Store

MEGABYTE = 1_000_000
SOURCE = SourceSettings(paths=["c"])
ENCODE = EncodeSettings(bundle="b", table="t")


def file_of(size: int = 10, *, name: str = "c.jsonl", tag: str = "t", file_format: str = "jsonl") -> SourceFile:
    return SourceFile("/corpus", name, file_format, size, tag)


def plan_of(
    *files: SourceFile, source: SourceSettings = SOURCE, encode: EncodeSettings = ENCODE, bundle: str = "b"
) -> Plan:
    return make_plan(files, PlanInputs(source, encode, bundle, {}))


def waves_of(plan: Plan) -> list[tuple[Slice, ...]]:
    return [plan.wave(number) for number in range(plan.waves)]


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 7 * MEGABYTE), st.booleans()), max_size=8),
    slice_megabytes=st.integers(1, 4),
    wave_megabytes=st.integers(1, 9),
)
def test_waves_cover_every_byte_once_in_order_within_their_limits(sizes, slice_megabytes, wave_megabytes):
    files = [file_of(size, file_format="jsonl.gz" if zipped else "jsonl") for size, zipped in sizes]
    encode = ENCODE.model_copy(update={"slice_megabytes": slice_megabytes, "wave_megabytes": wave_megabytes})
    waves = waves_of(plan_of(*files, encode=encode))
    pieces = [piece for wave in waves for piece in wave]
    assert list(plan_of(*files, encode=encode).slices()) == pieces
    assert all(piece.file == files[piece.ordinal] for piece in pieces)
    covered = [(piece.ordinal, piece.start, piece.stop) for piece in pieces]
    assert covered == sorted(covered)
    for i, file in enumerate(files):
        mine = [piece for piece in pieces if piece.ordinal == i]
        assert [0, *(piece.stop for piece in mine)] == [*(piece.start for piece in mine), file.size if mine else 0]
        assert sum(piece.size for piece in mine) == file.size
        if file.format == "jsonl.gz":
            assert len(mine) == (file.size > 0)
        else:
            assert all(0 < piece.size <= slice_megabytes * MEGABYTE for piece in mine)
    sums = [sum(piece.size for piece in wave) for wave in waves]
    for wave, size in zip(waves, sums, strict=True):
        assert len(wave) == 1 or size <= wave_megabytes * MEGABYTE
    for size, after in zip(sums, waves[1:], strict=False):
        assert size + after[0].size > wave_megabytes * MEGABYTE  # no wave ends early


@pytest.mark.parametrize(
    ("sizes", "cells"),
    [([], 4), ([10], 4), ([8, 8], 4), ([16], 4), ([17], 8), ([16, 16, 16], 12), ([32, 8, 32, 40], 12), ([100], 28)],
)
def test_number_of_cells_follows_from_the_bytes_of_the_largest_wave(sizes: list[int], cells: int):
    files = [file_of(size * MEGABYTE, file_format="jsonl.gz") for size in sizes]
    encode = {"wave_megabytes": 48, "slice_megabytes": 1, "cell_megabytes": 4, "buckets": 4}
    plan = plan_of(*files, encode=ENCODE.model_copy(update=encode))
    assert plan.cells == plan.header.to_json()["cells"] == cells
    assert all(plan.cells_of(wave) == tuple(range(cells)) for wave in range(plan.waves))


def test_empty_corpus_has_no_wave():
    assert plan_of(file_of(0), file_of(0, file_format="parquet")).waves == 0
    assert plan_of().waves == 0
    assert list(plan_of().slices()) == []
    with pytest.raises(IndexError):
        plan_of().wave(0)


# field -> (another value, can it change the rows of a commit)
SOURCE_CHANGES: dict[str, tuple[Any, bool]] = {
    "paths": (["elsewhere"], False),  # the files themselves are in the digest
    "format": ("jsonl", False),
    "version": (3, False),
    "id_field": ("id", True),
    "text_fields": (["text", "title"], True),
    "separator": ("\n", True),
    "separators": (["\n"], True),
    "stored_fields": ([], True),
    "types": ({"title": "int64"}, True),
    "timezone": ("Europe/Berlin", True),
    "columns": ({"_id": "docno"}, True),
    "csv": (CsvSettings(quotes=False), True),
    "max_text_bytes": (5, True),
    "max_id_bytes": (5, True),
    "on_damage": ("skip", False),  # a plan that damage has stopped is continued with it
}
ENCODE_CHANGES: dict[str, tuple[Any, bool]] = {
    "bundle": ("elsewhere", False),  # its digest is in the digest
    "table": ("elsewhere", False),
    "quarantine": ("elsewhere", False),
    "wave_megabytes": (1, True),
    "slice_megabytes": (1, True),
    "cell_megabytes": (1, True),
    "batch_tokens": (8, False),
    "actors": (3, False),
    "min_actors": (2, False),
    "max_actors": (9, False),
    "node_wait_seconds": (90, False),
    "actor_memory_megabytes": (500, False),
    "labels": ({"market": "spot"}, False),
    "actors_per_gpu": (2, False),
    "threads_per_actor": (2, False),
    "provider": ("cpu", False),
    "batch_timeout_s": (3600.0, False),
    "document_timeout_s": (3.0, False),
    "store_k": (7, True),
    "store_mass": (0.5, True),
    "max_length": (64, True),
    "passage_stride": (32, True),
    "max_passages": (3, True),
    "impact_bits": (4, True),
    "impact_step": (0.5, True),
    "probe_documents": (1, True),
    "buckets": (3, True),
    "max_bad_fraction": (1.0, False),
    "bad_fraction_min_rows": (7, False),
    "on_duplicate": ("last", True),
}


def test_every_setting_is_classified():
    assert set(SOURCE_CHANGES) == set(SourceSettings.model_fields)
    assert set(ENCODE_CHANGES) == set(EncodeSettings.model_fields)
    classified = [*ROW_SETTINGS, *PLAN_SETTINGS]
    assert sorted(classified) == sorted(name for name, (_, matters) in ENCODE_CHANGES.items() if matters)


@pytest.mark.parametrize("field", SOURCE_CHANGES)
def test_digest_depends_on_source_settings_that_can_change_a_row(field: str):
    value, matters = SOURCE_CHANGES[field]
    changed = plan_of(file_of(), source=SOURCE.model_copy(update={field: value}))
    assert (changed.digest != plan_of(file_of()).digest) is matters


@pytest.mark.parametrize("field", ENCODE_CHANGES)
def test_digest_depends_on_encode_settings_that_can_change_a_row(field: str):
    value, matters = ENCODE_CHANGES[field]
    changed = plan_of(file_of(), encode=ENCODE.model_copy(update={field: value}))
    assert (changed.digest != plan_of(file_of()).digest) is matters


def test_digest_depends_on_bundle_files_and_their_order():
    a, b = file_of(name="a.jsonl"), file_of(name="b.jsonl")
    plans = [
        plan_of(a, b),
        plan_of(b, a),
        plan_of(a),
        plan_of(a, b, bundle="other"),
        plan_of(a, file_of(name="b.jsonl", tag="changed")),
        plan_of(a, file_of(11, name="b.jsonl")),
    ]
    for one, other in itertools.combinations(plans, 2):
        assert one.digest != other.digest
    assert plan_of(a, b).digest == plans[0].digest
    moved = SourceFile("s3://elsewhere", "deep/a.jsonl", "jsonl", a.size, a.tag)
    assert plan_of(moved, b).digest == plans[0].digest


def test_saved_plan_is_loaded_completely_and_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = Store(str(tmp_path))
    files = [
        SourceFile("/c", "a/x.jsonl", "jsonl", 90 * MEGABYTE, "t", (("lang", "en"), ("day", None))),
        *(file_of(name=f"{i}.jsonl.gz", file_format="jsonl.gz") for i in range(3)),
    ]
    encode = ENCODE.model_copy(update={"wave_megabytes": 40})
    plan = plan_of(*files, encode=encode)
    save_plan(plan, table)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in table.names()}
    assert len(before) == 3
    found = load_plan(table, plan.digest)
    assert (found.digest, found.header, found.base, found.removed) == (plan.digest, plan.header, None, frozenset())
    assert waves_of(found) == waves_of(plan)
    assert found.waves == 3
    moved = [replace(file, uri="s3://elsewhere") for file in files]
    monkeypatch.setattr(Store, "put_new", None)  # nothing is sent again
    save_plan(plan_of(*moved, encode=encode), table)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in table.names()} == before


def test_plan_exists_only_with_its_header(tmp_path: Path):
    table = Store(str(tmp_path))
    plan = plan_of(file_of())
    save_plan(plan, table)
    folder = tmp_path / PROTOCOL_FOLDER / "plans"
    header = folder / f"{plan.digest}.json"
    assert max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns) == header
    header.unlink()
    with pytest.raises(ArtifactError, match="has no plan"):
        load_plan(table, plan.digest)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kept", [0, 40])
def test_damaged_plan_is_named(tmp_path: Path, part: int, kept: int):
    table, plan = Store(str(tmp_path)), plan_of(file_of())
    save_plan(plan, table)
    path = tmp_path / plan_objects(plan.digest)[part]
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ArtifactError, match=r"is damaged.*encode into a new table"):
        load_plan(table, plan.digest)


def test_wave_that_the_plan_does_not_have_is_an_error():
    plan = plan_of(file_of(3 * MEGABYTE), encode=ENCODE.model_copy(update={"wave_megabytes": 1, "slice_megabytes": 1}))
    for number in (-1, plan.waves):
        with pytest.raises(IndexError, match=f"wave {number} of {plan.waves}"):
            plan.wave(number)


def test_shares_of_waves_follow_their_bytes_and_are_equal_in_increments_and_without_bytes():
    encode = ENCODE.model_copy(update={"wave_megabytes": 2, "slice_megabytes": 1, "buckets": 4})
    plan = plan_of(file_of(3 * MEGABYTE), encode=encode)
    assert (plan.waves, plan.largest_wave_bytes) == (2, 2 * MEGABYTE)
    assert plan.wave_shares().tolist() == pytest.approx([2 / 3, 1 / 3])
    assert [plan.bytes_through(wave) for wave in range(2)] == [2 * MEGABYTE, 3 * MEGABYTE]
    following = plan_increment(plan, [file_of(5 * MEGABYTE, tag="u")], PlanInputs(SOURCE, encode, "b", {}), done=2)
    assert following.waves == 3
    assert following.wave_shares().tolist() == pytest.approx([1 / 3] * 3)
    assert following.largest_wave_bytes == 1_666_667
    assert [following.bytes_through(wave) for wave in range(3)] == [5 * MEGABYTE] * 3
    empty = plan_of(file_of(0), encode=encode)
    assert empty.wave_shares().tolist() == [1 / max(empty.waves, 1)] * empty.waves


@pytest.mark.parametrize("ending", [".json", ".files.parquet", ".slices.parquet"])
def test_plan_of_which_an_object_was_deleted_is_no_plan(tmp_path: Path, ending: str):
    table = Store(str(tmp_path))
    plan = plan_of(file_of())
    save_plan(plan, table)
    assert file_locations(table, plan.digest, {file_of().key}) == {file_of().key: "/corpus/c.jsonl"}
    (tmp_path / PROTOCOL_FOLDER / "plans" / f"{plan.digest}{ending}").unlink()
    with pytest.raises(ArtifactError, match=r"has no plan .* was deleted; encode into a new table"):
        load_plan(table, plan.digest)
    if ending == ".files.parquet":
        assert file_locations(table, plan.digest, {file_of().key}) == {}


@pytest.mark.parametrize(("content", "problem"), [("{", "Expecting"), ("[]", "it is no object")])
def test_damaged_record_of_a_plan_is_an_error(tmp_path: Path, content: str, problem: str):
    table = Store(str(tmp_path))
    assert read_record(table, "p") is None
    table.put_new(record_name("p"), content.encode())
    with pytest.raises(ArtifactError, match=rf"p\.json is damaged \({problem}.*; restore it"):
        read_record(table, "p")


@pytest.mark.parametrize("ending", [".json", ".files.parquet", ".slices.parquet"])
def test_object_of_another_plan_is_refused(tmp_path: Path, ending: str):
    table = Store(str(tmp_path))
    plan, other = plan_of(file_of()), plan_of(file_of(11))
    save_plan(plan, table)
    save_plan(other, table)
    folder = tmp_path / PROTOCOL_FOLDER / "plans"
    (folder / f"{other.digest}{ending}").replace(folder / f"{plan.digest}{ending}")
    with pytest.raises(DigestMismatchError, match="damaged"):
        load_plan(table, plan.digest)


def test_plan_of_another_format_is_refused(tmp_path: Path):
    table = Store(str(tmp_path))
    plan = plan_of(file_of())
    save_plan(plan, table)
    (tmp_path / PROTOCOL_FOLDER / "plans" / f"{plan.digest}.json").write_text('{"format": 1}')
    with pytest.raises(FormatVersionError, match="has format 1"):
        load_plan(table, plan.digest)


@pytest.mark.long
def test_memory_of_a_plan_is_bounded_by_its_arrow_columns():
    count = 50_000
    plan_of(*(file_of(name=f"{i}.jsonl.gz", file_format="jsonl.gz") for i in range(100)))  # imports, caches
    files = (
        SourceFile(
            "s3://bucket/corpus", f"part-{i:09}.jsonl.gz", "jsonl.gz", 40_000_000, hashlib.md5(b"%d" % i).hexdigest()
        )
        for i in range(count)
    )
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    encode = ENCODE.model_copy(update={"wave_megabytes": 256})
    plan = make_plan(files, PlanInputs(SOURCE, encode, "b", {}))
    seen = sum(len(plan.wave(wave)) for wave in range(plan.waves))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == count
    assert plan.waves == -(-count // 6)
    assert peak / count < 500  # the same files as Python objects take about 600 bytes each
    assert (pa.total_allocated_bytes() - arrow) / count < 400
