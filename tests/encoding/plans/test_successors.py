"""Plans that are given up: which files the next plan reads, keeps and removes, and which links are valid."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lsr_prod.corpus.filelist import KEPT, READ, REMOVED, file_of
from lsr_prod.encoding.plans.encode_plan import Plan
from lsr_prod.encoding.plans.successors import (
    check_not_followed,
    link_shortcut,
    link_successor,
    plan_objects,
    record_name,
    save_plan,
    successor_of,
    valid_links,
)
from lsr_prod.errors import CommitError, ConfigError, FencedError
from lsr_prod.storage import Store
from tests.encoding.plans.test_increment import (
    ENCODE,
    MEGABYTE,
    files_of,
    finished,
    first_saved,
    increment,
    prepare,
    save,
)


def at(waves: int) -> Callable[[str], int]:
    """Say that every plan has committed a number of waves."""
    return lambda _plan: waves


def states(plan: Plan) -> dict[int, str]:
    """Return the names of the files of a plan by state."""
    return {
        state: "".join(file_of(row).name[0] for row in plan.files.to_pylist() if row["state"] == state)
        for state in (READ, KEPT, REMOVED)
    }


def test_plan_without_wave_is_superseded_when_source_has_changed(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    bad_night = prepare(table, files_of("abc"), root)
    save(bad_night, table)
    done = {root.digest: 1, bad_night.digest: 0}
    good_night = prepare(table, files_of("abd"), root, done=done)
    assert (good_night.base, good_night.header.base_waves) == (bad_night.digest, 0)
    assert states(good_night) == {READ: "d", KEPT: "ab", REMOVED: ""}
    save(good_night, table, lambda plan: done.get(plan, 0))
    assert prepare(table, files_of("abd"), root, done=done).digest == good_night.digest


def test_first_plan_without_wave_is_superseded(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    after = prepare(table, files_of("ac"), root, done={})
    assert (after.base, states(after)) == (root.digest, {READ: "ac", KEPT: "", REMOVED: ""})


def test_source_that_returned_to_that_of_the_table_supersedes_with_a_plan_of_nothing(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    bad_night = prepare(table, files_of("abc"), root)
    save(bad_night, table)
    after = prepare(table, files_of("ab"), root, done={root.digest: 1})
    assert (states(after), after.waves) == ({READ: "", KEPT: "ab", REMOVED: ""}, 1)


def test_abandoned_first_plan_keeps_files_of_its_waves_and_reads_others_again(tmp_path: Path):
    table = Store(str(tmp_path))
    files = [*files_of("a", size=MEGABYTE), *files_of("b", size=2 * MEGABYTE), *files_of("c", size=MEGABYTE)]
    root = prepare(table, files, None)
    save(root, table)
    assert root.waves == 4
    wanted = {0: ("abc", "", ""), 1: ("bc", "a", ""), 2: ("bc", "a", "b"), 3: ("c", "ab", "")}
    for done, (read, kept, removed) in wanted.items():
        after = prepare(table, files, root, done={root.digest: done}, abandon=root.digest[:8])
        assert states(after) == {READ: read, KEPT: kept, REMOVED: removed}
        assert after.header.base_waves == done
    gone = prepare(table, files_of("x"), root, done={root.digest: 2}, abandon=root.digest[:8])
    assert states(gone) == {READ: "x", KEPT: "", REMOVED: "ab"}


def test_abandoned_increment_reads_its_files_again(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    begun = increment(root, [*files_of("b"), *files_of("c", size=3 * MEGABYTE)])
    save(begun, table)
    done = {root.digest: 1, begun.digest: 1}
    after = prepare(table, files_of("abd"), root, done=done, abandon=begun.digest[:12])
    assert {state: sorted(names) for state, names in states(after).items()} == {
        READ: ["a", "d"], KEPT: ["b"], REMOVED: ["a", "c"]
    }  # fmt: skip
    save(after, table, lambda plan: done.get(plan, 0))
    # Run again with the option: the plan is abandoned already.
    assert prepare(table, files_of("abd"), root, done=done, abandon=begun.digest[:12]).digest == after.digest


@pytest.mark.parametrize(
    ("names", "waves", "abandon", "words"),
    [
        ("ab", 1, "0123456789", "is not the newest plan"),
        ("ab", 2, "", "is finished"),
        ("ab", 1, "abc", "is too short"),
        (None, 0, "0123456789", "has no plan"),
    ],
)
def test_wrong_abandon_is_refused(tmp_path: Path, names: str | None, waves: int, abandon: str, words: str):
    table = Store(str(tmp_path))
    root = first_saved(table, names, size=MEGABYTE) if names else None
    done = {root.digest: waves} if root else {}
    with pytest.raises(ConfigError, match=words) as refused:
        prepare(
            table, files_of("ab", size=MEGABYTE), root, done=done, abandon=abandon or (root.digest[:8] if root else "")
        )
    assert refused.value.field == "--abandon"


def test_link_to_plan_that_expected_other_waves_is_invalid(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "abc", size=MEGABYTE)
    early = prepare(table, files_of("x"), root, done={})
    save(early, table, at(0))
    with pytest.raises(FencedError, match="was given up"):
        check_not_followed(table, root.digest, 0)
    # A wave was committed at the same moment: the plan continues, and can be given up later.
    check_not_followed(table, root.digest, 1)
    assert successor_of(table, root.digest, at(1)) is None
    late = prepare(table, files_of("x"), root, done={root.digest: 1}, abandon=root.digest)
    with pytest.raises(CommitError, match="has committed 2 waves, but 1 when this run began"):
        link_successor(table, late, at(2))
    save(late, table, at(1))
    assert successor_of(table, root.digest, at(1)) == late.digest
    with pytest.raises(FencedError, match=late.digest[:12]):
        check_not_followed(table, root.digest, 1)


def test_newest_of_several_links_counts_and_drafts_are_ignored(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    after = increment(root, files_of("abc"))
    save(after, table)
    (tmp_path / "_lsr_prod" / "successors" / root.digest / ".000007.json.0f.tmp").touch()  # of an interrupted process
    link_shortcut(table, root.digest, "later", None)
    assert [link.plan for link in valid_links(table, root.digest, finished)] == ["later", after.digest]
    assert table.get(f"_lsr_prod/successors/{root.digest}/000002.json") is not None


def test_plan_that_is_abandoned_may_have_other_sizes_and_another_follows_it_in_turn(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "abc", size=MEGABYTE)
    larger = ENCODE.model_copy(update={"wave_megabytes": 2})
    with pytest.raises(ConfigError, match=r"encode\.wave_megabytes"):
        prepare(table, files_of("abc", size=MEGABYTE), root, done={root.digest: 1}, encode=larger)
    second = prepare(
        table, files_of("xyz", size=MEGABYTE), root, done={root.digest: 1}, encode=larger, abandon=root.digest[:8]
    )
    assert (second.base, second.waves) == (root.digest, 2)
    save(second, table, at(1))
    done = {root.digest: 1, second.digest: 1}
    third = prepare(table, files_of("x", size=MEGABYTE), root, done=done, encode=larger, abandon=second.digest[:8])
    assert (third.base, third.header.base_waves) == (second.digest, 1)


def test_base_of_a_plan_that_was_finished_cannot_be_abandoned(tmp_path: Path):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    save(increment(root, files_of("abc", size=MEGABYTE)), table)
    with pytest.raises(ConfigError, match="is not the newest plan"):
        prepare(table, files_of("abd"), root, done={root.digest: 1}, abandon=root.digest[:8])


def test_link_of_a_plan_that_was_deleted_during_the_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    after = increment(root, files_of("abc"))
    save_plan(after, table)
    for name in (record_name(root.digest), *plan_objects(after.digest)):
        data = table.get(name)
        assert data is not None
        table.delete(name)
        with pytest.raises(CommitError, match=rf"{name} was deleted during the run: .*; run the job again"):
            link_successor(table, after, finished)
        table.put_new(name, data)
    assert successor_of(table, root.digest, finished) is None
    link_successor(table, after, finished)
    monkeypatch.setattr(Store, "get", lambda *_: None)  # after the links were listed
    with pytest.raises(CommitError, match=r"000001\.json was deleted during the run; run the job again"):
        successor_of(table, root.digest, finished)


@pytest.mark.parametrize("waves", [None, 1])
def test_shortcut_is_the_newest_link_as_long_as_its_number_of_waves_is_right(tmp_path: Path, waves: int | None):
    table = Store(str(tmp_path))
    root = first_saved(table, "ab")
    save(increment(root, files_of("abc")), table)
    link_shortcut(table, root.digest, "later", waves)
    assert successor_of(table, root.digest, at(1)) == "later"
    newest = [link.plan for link in valid_links(table, root.digest, at(2))]
    assert (newest[0] == "later") == (waves is None)
    assert len(newest) == (2 if waves is None else 1)
