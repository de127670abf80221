"""Mutants of the exactly-once protocol."""

from tests.faults.deletion_mutants import DELETION_MUTANTS
from tests.faults.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    *DELETION_MUTANTS,
    Mutant(
        "duplicates of earlier waves are not looked up",
        "encoding/cells/cell.py",
        (("value_set=found.known.active)", "value_set=found.known.active[:0])"),),
        "chain_without_faults",
    ),
    Mutant(
        "resume skips a wave",
        "encoding/commit/committer.py",
        (("return 0 if version is None else version + 1", "return 0 if version is None else version + 2"),),
        "killed_before_a_commit",
    ),
    Mutant(
        "no fence",
        "encoding/commit/committer.py",
        (("for store in (self.quarantine, self.table):", "for store in ():"),),
        "older_stalls_between_its_commits",
    ),
    Mutant(
        "fence of the quarantine only",
        "encoding/commit/committer.py",
        (("for store in (self.quarantine, self.table):", "for store in (self.quarantine,):"),),
        "older_stalls_between_its_commits",
    ),
    Mutant(
        "fence of the table only",
        "encoding/commit/committer.py",
        (("for store in (self.quarantine, self.table):", "for store in (self.table,):"),),
        "older_stalls_before_its_bad_rows",
    ),
    Mutant(
        "no check of the epoch",
        "encoding/commit/fence.py",
        (("if newest > self.number:", "if newest < self.number:"),),
        "older_decides_again",
    ),
    Mutant(
        "commit from a fresh handle",
        "encoding/tables/table.py",
        (
            (
                "self._handle.create_write_transaction(",
                "DeltaTable(self.store.location).create_write_transaction(",
            ),
        ),
        "older_stalls_until_newer_is_done",
    ),
    Mutant(
        "commit with removals is tried at several versions",
        "encoding/tables/table.py",
        (("max_commit_retries=0 if removes else None", "max_commit_retries=None"),),
        "compaction_commits_before_an_increment",
    ),
    Mutant(
        "overwrite instead of create-if-absent",
        "storage/stores.py",
        (
            (
                "return drafts.create_file(Path(self.uri) / _safe(name), (data,))",
                "return not (Path(self.uri) / _safe(name)).unlink(missing_ok=True) "
                "and drafts.create_file(Path(self.uri) / _safe(name), (data,))",
            ),
        ),
        "older_stalls_until_newer_is_done",
    ),
    Mutant(
        "sparse table is committed before the quarantine",
        "encoding/commit/committer.py",
        (
            ("        self._commit_quarantine(result.wave,", "        bad = (result.wave,"),
            (
                "table, adds, whole, result.wave, vectors)\n",
                "table, adds, whole, result.wave, vectors)\n        self._commit_quarantine(*bad)\n",
            ),
        ),
        "killed_before_a_commit",
    ),
    Mutant(
        "bad rows of an earlier attempt stay",
        "encoding/commit/committer.py",
        (("removes = sorted(before - {part.path for part in bad})", "removes: list[str] = []"),),
        "killed_before_a_commit",
    ),
    Mutant(
        "committed wave is committed again",
        "encoding/commit/committer.py",
        (("        if done > result.wave:\n            return False\n", ""),),
        "commit_succeeds_but_reports_an_error",
    ),
    Mutant(
        "parts are not checked before their commit",
        "encoding/commit/committer.py",
        (("            _check_and_touch(table, part, began)\n", "            pass\n"),),
        "parts_are_damaged_before_their_commit",
    ),
    Mutant(
        "reused parts are not touched before their commit",
        "encoding/commit/committer.py",
        (("        store.touch(path)\n", "        pass\n"),),
        "vacuum_meets_reused_parts",
    ),
    Mutant(
        "markers are trusted without their parts",
        "encoding/commit/markers.py",
        (("        check_cell(table, quarantine, result)\n", "        pass\n"),),
        "parts_are_damaged_before_their_commit",
    ),
    Mutant(
        "marker with another number of rows is accepted",
        "encoding/commit/markers.py",
        (("earlier is not None and earlier.counts.rows_in != result.counts.rows_in", "False"),),
        "attempts_read_different_rows",
    ),
    Mutant(
        "markers that replace compacted parts are used",
        "encoding/cells/lookup.py",
        (("return all(each.path in parts and parts[each.path] == each.before", "return all(True"),),
        "compaction_follows_a_killed_increment",
    ),
    Mutant(
        "results that follow replaced results are used",
        "encoding/cells/lookup.py",
        (("result is not None and result.output(output.wave) == output", "True"),),
        "killed_ahead_of_its_commit",
    ),
    Mutant(
        "results that follow replaced results are used after the commit",
        "encoding/cells/lookup.py",
        (("            return committed.has(cell, output)\n", "            return True\n"),),
        "older_encodes_ahead_of_a_newer_commit",
    ),
    Mutant(
        "results that are not committed are not looked up",
        "encoding/cells/lookup.py",
        (("for output in (follows or {}).get(cell, ())", "for output in ()"),),
        "chain_without_faults",
    ),
    Mutant(
        "row counts are not compared",
        "encoding/cells/lookup.py",
        (("if len(counts) != tasks or expected != arrived:", "if False:"),),
        "a_row_is_lost_on_the_way_to_its_cell",
    ),
    Mutant(
        "file is not compared with its pin",
        "corpus/pinned_file.py",
        (
            ("    state = FileState.of(handle)\n", "    return FileState.of(handle)\n"),
            ("    if before is None:\n", "    if True:\n"),
        ),
        "source_changes_while_it_is_read",
    ),
    Mutant(
        "two increments follow one plan",
        "encoding/plans/successors.py",
        (("        if following not in (None, plan.digest):\n", "        if False:\n"),),
        "source_changes_before_the_plan_is_saved",
    ),
    Mutant(
        "superseded plan is not fenced",
        "encoding/commit/markers.py",
        (("    committer.fence()\n", ""),),
        "plan_is_superseded_during_its_commit",
    ),
    Mutant(
        "bad rows of a superseded plan stay",
        "encoding/commit/markers.py",
        (("    committer.clear_quarantine(waves)\n", ""),),
        "plan_is_superseded_during_its_commit",
    ),
    Mutant(
        "plan that was given up commits a wave",
        "encoding/commit/committer.py",
        (("        check_not_followed(self.table, self.epoch.plan, done)\n", ""),),
        "superseded_plan_is_resumed",
    ),
    Mutant(
        "link is valid although its plan has committed another wave",
        "encoding/plans/successors.py",
        (("link.waves is None or link.waves == waves", "link.plan"),),
        "plan_commits_before_it_is_given_up",
    ),
    Mutant(
        "plan is given up although it has committed another wave",
        "encoding/commit/markers.py",
        (("    if done != waves:\n", "    if False:\n"),),
        "plan_commits_before_it_is_given_up",
    ),
    Mutant(
        "abandoned plan counts as finished",
        "encoding/plans/increment.py",
        (("whole, some = base.committed_files(done)", "whole, some = base.committed_files(base.waves)"),),
        "plan_is_abandoned_between_its_waves",
    ),
)
