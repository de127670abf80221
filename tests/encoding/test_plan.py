import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.encoding.plan import PROTOCOL_FOLDER, Plan, make_plan, save_plan
from lsr_prod.encoding.sources import FileFormat, SourceFile, resolve_source
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.formats.digest import digest_json
from lsr_prod.storage import Store

MEGABYTE = 1_000_000
SOURCE = SourceSettings(paths=["c"])
ENCODE = EncodeSettings(bundle="b", table="t")


def file_of(size: int = 10, *, name: str = "c.jsonl", tag: str = "t", file_format: FileFormat = "jsonl") -> SourceFile:
    return SourceFile("/corpus", name, file_format, size, tag)


def plan_of(
    *files: SourceFile, source: SourceSettings = SOURCE, encode: EncodeSettings = ENCODE, bundle: str = "b"
) -> Plan:
    return make_plan(files, source, encode, bundle_digest=bundle, options={})


@given(
    sizes=st.lists(st.tuples(st.integers(0, 7 * MEGABYTE), st.booleans()), max_size=8),
    slice_megabytes=st.integers(1, 4),
    wave_megabytes=st.integers(1, 9),
)
def test_waves_hold_every_byte_once_in_order_and_within_their_limits(sizes, slice_megabytes, wave_megabytes):
    files = [file_of(size, file_format="jsonl.gz" if zipped else "jsonl") for size, zipped in sizes]
    encode = ENCODE.model_copy(update={"slice_megabytes": slice_megabytes, "wave_megabytes": wave_megabytes})
    waves = plan_of(*files, encode=encode).waves
    pieces = [piece for wave in waves for piece in wave]
    covered = [(piece.ordinal, piece.start, piece.stop) for piece in pieces]
    assert covered == sorted(covered)
    for i, file in enumerate(files):
        mine = [piece for piece in pieces if piece.ordinal == i]
        assert [0, *(piece.stop for piece in mine)] == [*(piece.start for piece in mine), file.size if mine else 0]
        assert sum(piece.size for piece in mine) == file.size
        if file.format == "jsonl.gz":
            assert len(mine) == 1
        else:
            assert all(0 < piece.size <= slice_megabytes * MEGABYTE for piece in mine)
    sums = [sum(piece.size for piece in wave) for wave in waves]
    for wave, size in zip(waves, sums, strict=True):
        assert len(wave) == 1 or size <= wave_megabytes * MEGABYTE
    for size, after in zip(sums, waves[1:], strict=False):
        assert size + after[0].size > wave_megabytes * MEGABYTE  # no wave is cut early


def write_parquet(path: Path, **columns: Any) -> SourceFile:
    pq.write_table(pa.table(columns), path, row_group_size=100)
    (file,) = resolve_source(SourceSettings(paths=[str(path)]), {})
    return file


def test_slices_of_parquet_are_whole_row_groups_of_about_the_wanted_size(tmp_path: Path):
    texts = [f"{i} " * 1000 for i in range(1050)]  # row groups of about 0.4 MB
    file = write_parquet(tmp_path / "c.parquet", _id=[str(i) for i in range(1050)], text=texts)
    encode = ENCODE.model_copy(update={"slice_megabytes": 1})
    pieces = [piece for wave in plan_of(file, encode=encode).waves for piece in wave]
    footer = pq.read_metadata(tmp_path / "c.parquet")
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    assert len(groups) == 11
    assert 1 < len(pieces) < len(groups)
    assert [0, *(piece.stop for piece in pieces)] == [*(piece.start for piece in pieces), len(groups)]
    for piece in pieces:
        assert piece.first_row == sum(group.num_rows for group in groups[: piece.start])
        assert piece.size == sum(group.total_byte_size for group in groups[piece.start : piece.stop])
        assert sum(group.total_byte_size for group in groups[piece.start : piece.stop - 1]) < MEGABYTE
    assert all(piece.size >= MEGABYTE for piece in pieces[:-1])


def test_nothing_to_read_is_no_wave():
    assert plan_of(file_of(0)).waves == ()
    assert plan_of().waves == ()


# field -> (another value, whether it can change which rows a commit of the plan has)
SOURCE_CHANGES: dict[str, tuple[Any, bool]] = {
    "paths": (["elsewhere"], False),  # the files themselves are in the digest
    "format": ("jsonl", False),
    "version": (3, False),
    "id_field": ("id", True),
    "text_fields": (["text", "title"], True),
    "separator": ("\n", True),
    "stored_fields": ([], True),
    "max_text_bytes": (5, True),
}
ENCODE_CHANGES: dict[str, tuple[Any, bool]] = {
    "bundle": ("elsewhere", False),  # its digest is in the digest
    "table": ("elsewhere", False),
    "quarantine": ("elsewhere", False),
    "wave_megabytes": (1, True),
    "slice_megabytes": (1, True),
    "batch_tokens": (8, False),
    "actors": (3, False),
    "threads_per_actor": (2, False),
    "store_k": (7, True),
    "impact_bits": (8, True),  # 8 is the only value there is
    "probe_documents": (1, True),
    "buckets": (3, True),
    "max_bad_fraction": (1.0, False),
}


def test_every_setting_is_judged_here():
    assert set(SOURCE_CHANGES) == set(SourceSettings.model_fields)
    assert set(ENCODE_CHANGES) == set(EncodeSettings.model_fields)


@pytest.mark.parametrize("field", SOURCE_CHANGES)
def test_the_digest_changes_with_the_source_settings_that_can_change_a_row(field: str):
    value, matters = SOURCE_CHANGES[field]
    changed = plan_of(file_of(), source=SOURCE.model_copy(update={field: value}))
    assert (changed.digest != plan_of(file_of()).digest) is matters


@pytest.mark.parametrize("field", ENCODE_CHANGES.keys() - {"impact_bits"})
def test_the_digest_changes_with_the_encode_settings_that_can_change_a_row(field: str):
    value, matters = ENCODE_CHANGES[field]
    changed = plan_of(file_of(), encode=ENCODE.model_copy(update={field: value}))
    assert (changed.digest != plan_of(file_of()).digest) is matters


def test_the_digest_names_bundle_files_and_their_order():
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


def test_the_saved_plan_has_the_digest_it_is_named_by_and_is_never_replaced(tmp_path: Path):
    plan = plan_of(file_of())
    save_plan(plan, Store(str(tmp_path)))
    saved = tmp_path / PROTOCOL_FOLDER / "plans" / f"{plan.digest}.json"
    assert digest_json(json.loads(saved.read_bytes())) == plan.digest
    before = saved.stat()
    save_plan(plan, Store(str(tmp_path)))
    assert saved.stat() == before


def test_columns_that_hold_strings_in_any_form_are_accepted(tmp_path: Path):
    file = write_parquet(
        tmp_path / "c.parquet",
        _id=pa.array(["a"], pa.large_string()),
        text=pa.array(["x"]).dictionary_encode(),
        title=pa.nulls(1),
        year=[2026],
    )
    assert len(plan_of(file).waves) == 1
    assert len(plan_of(file, source=SOURCE.model_copy(update={"text_fields": ["text", "absent"]})).waves) == 1


@pytest.mark.parametrize(
    ("source", "field", "problem"),
    [
        ({"id_field": "id"}, "source.id_field", "has no column id"),
        ({"text_fields": ["body"]}, "source.text_fields", "has none of the columns"),
        ({"id_field": "year"}, "source.id_field", "is int64; cast it to string"),
        ({"text_fields": ["text", "tags"]}, "source.text_fields", "column tags of"),
        ({"stored_fields": ["year"]}, "source.stored_fields", "is int64"),
    ],
)
def test_a_column_that_does_not_fit_is_named(tmp_path: Path, source: dict, field: str, problem: str):
    file = write_parquet(tmp_path / "c.parquet", _id=["a"], text=["x"], year=[2026], tags=[["x"]])
    with pytest.raises(ConfigError, match=problem) as refused:
        plan_of(file, source=SOURCE.model_copy(update=source))
    assert refused.value.field == field


@pytest.mark.parametrize("data", [b"", b"no parquet", b"PAR1" + b"\xff" * 40 + b"PAR1"])
def test_a_file_without_a_footer_is_an_error(tmp_path: Path, data: bytes):
    (tmp_path / "c.parquet").write_bytes(data)
    (file,) = resolve_source(SourceSettings(paths=[str(tmp_path / "c.parquet")]), {})
    with pytest.raises(SourceError, match="is no readable Parquet file"):
        plan_of(file)
