import json
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.filelist import REMOVED, file_keys, list_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, make_plan
from lsr_prod.encoding.plans.increment import has_order_of, plan_increment, prepare_plan
from lsr_prod.encoding.plans.plan_header import PLAN_SETTINGS, ROW_SETTINGS
from lsr_prod.encoding.plans.successors import link_successor, load_plan, plan_chain, save_plan
from lsr_prod.errors import CommitError, ConfigError, LineageError
from lsr_prod.storage import Store

MEGABYTE = 1_000_000
SOURCE = SourceSettings(paths=["c"])
ENCODE = EncodeSettings(bundle="b", table="t", buckets=4, wave_megabytes=1, slice_megabytes=1)


def files_of(names: Iterable[str], *, uri: str = "/corpus", size: int = 10) -> list[SourceFile]:
    """Return one file per character; the character is its content."""
    return [SourceFile(uri, f"{name}.jsonl", "jsonl", size, f"tag-{name}") for name in names]


def first_plan(names: Iterable[str], *, size: int = 10) -> Plan:
    return make_plan(files_of(names, size=size), PlanInputs(SOURCE, ENCODE, "b", {}))


def increment(base: Plan, files: Iterable[SourceFile], *, done: int = 1_000, abandon: bool = False) -> Plan:
    return plan_increment(base, files, PlanInputs(SOURCE, ENCODE, "b", {}), done=done, abandon=abandon)


def prepare(table: Store, files: Iterable[SourceFile], root: Plan | None, **changed: Any) -> Plan:
    """Prepare a run on a table with all waves of all plans, or with ``done`` waves of each."""
    done = changed.pop("done", None)
    return prepare_plan(
        files,
        PlanInputs(changed.pop("source", SOURCE), changed.pop("encode", ENCODE), changed.pop("bundle", "b"), {}),
        table=table,
        root=root.digest if root else None,
        waves_done=lambda digest: 1_000 if done is None else done.get(digest, 0),
        abandon=changed.pop("abandon", None),
    )


def finished(digest: str) -> int:
    """Say that every plan has all of its waves."""
    return 1_000


def save(plan: Plan, table: Store, waves_done: Callable[[str], int] = finished) -> None:
    """Save a plan as a run does, before its first wave."""
    save_plan(plan, table)
    if plan.base is not None:
        link_successor(table, plan, waves_done)


def keys(names: Iterable[str]) -> frozenset[int]:
    return frozenset(file.key for file in files_of(names))


def read_names(plan: Plan) -> list[str]:
    return [piece.file.name[0] for piece in plan.slices()]


@settings(deadline=None)
@given(old=st.text("abcde", max_size=8), new=st.text("abcde", max_size=8))
def test_increment_reads_new_files_and_removes_deleted_ones(old: str, new: str):
    base = first_plan(old)
    plan = increment(base, files_of(new))
    assert Counter(read_names(plan) if plan is not base else []) == Counter(new) - Counter(old)
    assert plan.removed == keys(set(old) - set(new))
    if plan is not base:
        assert plan.base == base.digest
        listed = file_keys(plan.files)[plan.files["state"].to_numpy() != REMOVED]
        assert listed.tolist() == [file.key for file in files_of(new)]


def test_file_that_is_listed_once_less_changes_a_plan_without_waves():
    base = first_plan("aab")
    after = increment(base, files_of("ab"), done=0)
    assert (after.base, after.header.base_waves, sorted(read_names(after))) == (base.digest, 0, ["a", "b"])
    begun = first_plan("aab", size=MEGABYTE)
    resumed = increment(begun, files_of("ab", size=MEGABYTE), done=1)
    assert (resumed.digest, read_names(resumed)) == (begun.digest, ["a", "a", "b"])
    assert not has_order_of(resumed, list_files(files_of("ab", size=MEGABYTE)))  # an increment follows


def test_moved_or_reordered_files_are_unchanged(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_plan("abca")
    save(root, table)
    moved = files_of("aabc", uri="s3://elsewhere")
    assert prepare(table, moved, root).digest == root.digest
    resumed = prepare(table, moved, root, done={})
    assert resumed.digest == root.digest
    assert read_names(resumed) == list("abca")
    assert {piece.file.uri for piece in resumed.slices()} == {"s3://elsewhere"}


def test_unfinished_increment_resumes_with_the_current_locations_of_its_files(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_plan("ab")
    save(root, table)
    after = prepare(table, files_of("bcd"), root)
    save(after, table)
    resumed = prepare(table, files_of("dcb", uri="/moved"), root, done={root.digest: 1})
    assert (resumed.digest, resumed.removed) == (after.digest, keys("a"))
    assert [piece.file.location for piece in resumed.slices()] == ["/moved/c.jsonl", "/moved/d.jsonl"]
    assert load_plan(table, after.digest).wave(0) == after.wave(0)


def test_resumed_plan_has_the_location_facts_of_the_current_files(tmp_path: Path):
    table, corpus = Store(str(tmp_path / "table")), tmp_path / "corpus"
    corpus.mkdir()
    for name in "ab":
        (corpus / f"{name}.jsonl").write_text(f'{{"_id": "{name}", "text": "x"}}\n')
        os.utime(corpus / f"{name}.jsonl", (10**9, 10**9))
    source = SourceSettings(paths=[str(corpus)])
    root = prepare(table, resolve_source(source, {}), None, source=source)
    save(root, table)
    assert {piece.file.mtime_ns for piece in root.slices()} == {10**18}
    assert {(piece.file.mtime_ns, piece.file.inode) for piece in load_plan(table, root.digest).slices()} == {(0, 0)}
    shutil.copytree(corpus, tmp_path / "moved", copy_function=shutil.copyfile)
    for name in "ab":
        os.utime(tmp_path / "moved" / f"{name}.jsonl", (10**9 + 1, 10**9 + 1))
    source = SourceSettings(paths=[str(tmp_path / "moved")])
    resumed = prepare(table, resolve_source(source, {}), root, source=source, done={})
    assert resumed.digest == root.digest
    facts = [(piece.file.mtime_ns, piece.file.inode) for piece in resumed.slices()]
    assert facts == [((10**9 + 1) * 10**9, (tmp_path / "moved" / f"{name}.jsonl").stat().st_ino) for name in "ab"]


def test_increments_form_a_chain_and_an_earlier_state_may_return(tmp_path: Path):
    table = Store(str(tmp_path))
    root = prepare(table, files_of("a"), None)
    save(root, table)
    digests = [root.digest]
    for names, added, removed in [("ab", "b", ""), ("b", "", "a"), ("ab", "a", ""), ("b", "", "a"), ("", "", "b")]:
        plan = prepare(table, files_of(names), root)
        save(plan, table)
        assert (plan.base, read_names(plan), plan.removed) == (digests[-1], list(added), keys(removed))
        assert plan_chain(table, root.digest, finished)[-1] == plan.digest
        assert prepare(table, files_of(names), root).digest == plan.digest  # no difference
        digests.append(plan.digest)
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    ("size", "files", "waves"), [(0, 1, 1), (1, 1, 1), (MEGABYTE, 2, 2), (MEGABYTE + 1, 2, 3), (MEGABYTE, 9, 4)]
)
def test_waves_of_an_increment_partition_buckets_and_read_all_new_files(size, files, waves):
    names = "cdefghijk"[:files]
    plan = increment(first_plan("ab"), files_of("ab", size=10) + files_of(names, size=size))
    assert plan.waves == waves
    assert [bucket for wave in range(waves) for bucket in plan.buckets_of(wave)] == list(range(ENCODE.buckets))
    assert all(plan.buckets_of(wave) for wave in range(waves))
    for wave in range(waves):
        assert plan.wave(wave) == tuple(plan.slices())
        assert {piece.file.name[0] for piece in plan.wave(wave)} == (set(names) if size else set())
    cells = [cell for wave in range(waves) for cell in plan.cells_of(wave)]
    assert sorted(cells) == list(range(plan.cells))
    assert all(cell % ENCODE.buckets in plan.buckets_of(wave) for wave in range(waves) for cell in plan.cells_of(wave))
    assert first_plan("ab").cells_of(0) == (0, 1, 2, 3)


def test_large_increment_has_cells_of_bounded_size():
    encode = EncodeSettings(bundle="b", table="t")
    base = make_plan(files_of("a"), PlanInputs(SOURCE, encode, "b", {}))
    new = files_of("bcdefghijklmnopq", size=1000 * MEGABYTE)
    plan = plan_increment(base, files_of("a") + new, PlanInputs(SOURCE, encode, "b", {}, lambda: 100), done=1_000)
    assert (plan.waves, plan.cells) == (6, 16 * 67)  # of 15 MB
    sizes = [len(plan.cells_of(wave)) for wave in range(plan.waves)]
    assert all(sum(sizes[wave : wave + 2]) >= 200 for wave in range(plan.waves - 1))  # two are encoded at a time


def test_increment_of_removed_files_only_has_one_wave_of_all_buckets():
    plan = increment(first_plan("ab"), files_of("a"))
    assert (plan.waves, plan.wave(0), plan.buckets_of(0)) == (1, (), range(4))


def test_unchanged_files_are_not_opened(tmp_path: Path):
    gone = [SourceFile("/nowhere", f"{name}.parquet", "parquet", 100 * MEGABYTE, name) for name in "ab"]
    base = replace(first_plan(""), files=list_files(gone))
    pq.write_table(pa.table({"_id": ["a"], "text": ["x"]}), tmp_path / "c.parquet")
    new = list(resolve_source(SourceSettings(paths=[str(tmp_path / "c.parquet")]), {}))
    assert [piece.file for piece in increment(base, gone + new).wave(0)] == new


def test_source_that_changed_before_the_newest_plan_is_finished_is_refused(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab", size=MEGABYTE)
    with pytest.raises(ConfigError, match=r"1 files are new and 1 are gone .* run with the former source") as refused:
        prepare(table, files_of("bc", size=MEGABYTE), root, done={root.digest: 1})
    for names, changes in (("abc", "1 files are new and 0 are gone"), ("a", "0 files are new and 1 are gone")):
        with pytest.raises(ConfigError, match=changes):
            prepare(table, files_of(names, size=MEGABYTE), root, done={root.digest: 1})
    assert refused.value.field == "source.paths"
    assert f"--abandon {root.digest[:12]}" in str(refused.value)
    twice = first_saved(table, "aab", size=MEGABYTE)
    assert prepare(table, files_of("ab", size=MEGABYTE), twice, done={twice.digest: 1}).digest == twice.digest
    assert prepare(table, files_of("a"), first_saved(table, "aa")).digest == first_plan("aa").digest


def first_saved(table: Store, names: str, *, size: int = 10) -> Plan:
    plan = first_plan(names, size=size)
    save(plan, table)
    return plan


CHANGES: dict[str, Any] = {
    "store_k": 7, "store_mass": 0.5,
    "max_length": 9, "passage_stride": 5, "max_passages": 2, "impact_bits": 4, "impact_step": 0.5,
    "buckets": 5, "on_duplicate": "last",
    "wave_megabytes": 7, "slice_megabytes": 2, "cell_megabytes": 3, "probe_documents": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ROW_SETTINGS | PLAN_SETTINGS))
def test_settings_that_differ_from_those_of_the_table_are_refused(tmp_path: Path, name: str):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab", size=MEGABYTE)
    encode = ENCODE.model_copy(update={name: CHANGES[name]})
    with pytest.raises(ConfigError, match=f"{json.dumps(CHANGES[name])} is not what .* is made with, ") as refused:
        prepare(table, files_of("ab", size=MEGABYTE), root, encode=encode, done={root.digest: 1})
    assert refused.value.field == f"encode.{name}"
    before = ENCODE.model_dump()[name] or root.header.encode.get(name)
    expected = "remove the setting" if before is None else f"set {json.dumps(before)}"
    assert refused.value.remedy == f"{expected}, or give a new encode.table"
    if name in ROW_SETTINGS:
        with pytest.raises(ConfigError, match="is made with"):
            prepare(table, files_of("abc"), root, encode=encode)
    else:
        assert prepare(table, files_of("abc"), root, encode=encode).base == root.digest
        superseding = prepare(table, files_of("ab", size=MEGABYTE), root, encode=encode, done={})
        assert (superseding.base, superseding.header.base_waves) == (root.digest, 0)


@pytest.mark.parametrize(("name", "value"), [("text_fields", ["text"]), ("separator", "\n"), ("stored_fields", [])])
def test_fields_that_differ_from_those_of_the_table_are_refused(tmp_path: Path, name: str, value: Any):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    with pytest.raises(ConfigError, match="is made with") as refused:
        prepare(table, files_of("abc"), root, source=SOURCE.model_copy(update={name: value}))
    assert refused.value.field == f"source.{name}"


def test_setting_that_is_left_out_is_not_that_of_the_table(tmp_path: Path):
    table = Store(str(tmp_path))
    chosen = ENCODE.model_copy(update={"max_length": 100})
    root = prepare(table, files_of("ab"), None, encode=chosen)
    save(root, table)
    with pytest.raises(ConfigError, match=r"encode\.max_length"):
        prepare(table, files_of("abc"), root, encode=chosen.model_copy(update={"max_length": None}))


def test_bundle_other_than_that_of_the_table_is_refused(tmp_path: Path):
    table = Store(str(tmp_path))
    with pytest.raises(LineageError, match=r"was made by bundle b, encode\.bundle is c"):
        prepare(table, files_of("ab"), first_saved(table, "ab"), bundle="c")


def test_only_one_of_concurrent_increments_follows_a_plan(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    plans = [prepare(table, files_of("ab" + name), root) for name in "cdefgh"]
    start, lost = threading.Barrier(2 * len(plans)), []

    def attempt_at(plan: Plan) -> None:
        start.wait()
        try:
            save(plan, table)
        except CommitError as error:
            lost.append((plan.digest, str(error)))

    attempts = [threading.Thread(target=attempt_at, args=(plan,)) for plan in plans for _ in range(2)]
    for attempt in attempts:
        attempt.start()
    for attempt in attempts:
        attempt.join()
    newest = plan_chain(table, root.digest, finished)[-1]
    assert sorted(digest for digest, _ in lost) == sorted(
        plan.digest for plan in plans for _ in range(2) if plan.digest != newest
    )
    assert all(newest[:12] in message and "let that run finish" in message for _, message in lost)
    assert load_plan(table, newest).base == root.digest


def resolved(uri: Path, version: int | None = None) -> Sequence[SourceFile]:
    return list(resolve_source(SourceSettings(paths=[str(uri)], version=version), {}))


def test_increment_of_a_delta_source_reads_only_rewritten_files(tmp_path: Path):
    folder, table = tmp_path / "delta", Store(str(tmp_path / "table"))
    rows = [{"_id": f"{part}-{i}", "text": f"text {i}", "part": f"p{part}"} for part in range(6) for i in range(20)]
    write_deltalake(folder, pa.Table.from_pylist(rows), partition_by=["part"])
    source = SOURCE.model_copy(update={"stored_fields": []})
    start = DeltaTable(folder).version()
    root = prepare(table, resolved(folder), None, source=source)
    save(root, table)

    changed = [
        {"_id": "1-3", "text": "an updated text", "part": "p1"},
        {"_id": "new", "text": "an inserted text", "part": "p2"},
    ]
    merge = DeltaTable(folder).merge(
        pa.Table.from_pylist(changed),
        predicate="s._id = t._id AND s.part = t.part",
        source_alias="s",
        target_alias="t",
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(folder).delete("_id = '4-7'")
    write_deltalake(folder, pa.Table.from_pylist([{"_id": "more", "text": "x", "part": "p5"}]), mode="append")

    before, after = resolved(folder, start), resolved(folder)
    plan = prepare(table, after, root, source=source)
    read = {
        row["_id"]
        for piece in plan.wave(0)
        for row in pq.read_table(piece.file.location, partitioning=None).to_pylist()
    }
    same = {file.key for file in before} & {file.key for file in after}
    assert plan.removed == {file.key for file in before} - same
    assert {dict(piece.file.constants)["part"] for piece in plan.slices()} <= {"p1", "p2", "p4", "p5"}
    assert {"1-3", "new", "more", "4-8"} <= read
    assert "4-7" not in read
    assert not any(name.startswith(("0-", "3-")) for name in read)
    unread = {
        row["_id"]
        for file in after
        if file.key in same
        for row in pq.read_table(file.location, partitioning=None).to_pylist()
    }
    assert read | unread == {row["_id"] for row in DeltaTable(folder).to_pyarrow_table().to_pylist()}
    assert len(read) < 60  # whole files of the four partitions that changed, not of the six
    save(plan, table)
    assert prepare(table, resolved(folder), root, source=source).digest == plan.digest


def test_twenty_thousand_files_are_compared_exactly():
    rng = random.Random(3)
    tags = [f"{rng.getrandbits(64):x}" for _ in range(20_000)]
    base = replace(first_plan(""), files=list_files(SourceFile("/c", "f", "jsonl", 1, tag) for tag in tags))
    after = tags[100:] + [f"new-{i}" for i in range(200)]
    rng.shuffle(after)
    plan = increment(base, (SourceFile("/c", "f", "jsonl", 1, tag) for tag in after))
    assert sorted(piece.file.tag for piece in plan.slices()) == sorted(f"new-{i}" for i in range(200))
    assert len(plan.removed) == 100
