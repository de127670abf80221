"""Mutants of deletions, of lookups of committed rows, and of maintenance."""

from tests.faults.mutant import Mutant

__all__ = ["DELETION_MUTANTS"]

DELETION_MUTANTS = (
    Mutant(
        "increment deletes rows that stay",
        "encoding/cells/known_rows.py",
        (
            (
                "            goes = pc.or_(leaves, loses)\n",
                "            goes = pc.or_(pc.and_not(live, found), leaves)\n",
            ),
        ),
        "chain_without_faults",
    ),
    Mutant(
        "increment keeps rows of removed files",
        "encoding/cells/known_rows.py",
        (("leaves = pc.and_(pc.is_in(keys, value_set=gone), live)", "leaves = pc.and_(pc.is_null(keys), live)"),),
        "chain_without_faults",
    ),
    Mutant(
        "every cell of a bucket deletes the rows of the bucket",
        "encoding/cells/known_rows.py",
        (('self.to_delete.filter(pc.equal(self.to_delete["cell"], cell))', "self.to_delete"),),
        "chain_without_faults",
        buckets=1,
    ),
    Mutant(
        "rows that earlier commits deleted are looked up",
        "encoding/cells/known_rows.py",
        (("yield start, batch, live\n", "yield start, batch, pa.array(np.ones(batch.num_rows, np.bool_))\n"),),
        "source_returns_to_an_earlier_state",
    ),
    Mutant(
        "new deletions replace the earlier ones of a part",
        "encoding/tables/deletions.py",
        (("numbers[file.path] = _union([*old, rows])", "numbers[file.path] = _union([rows])"),),
        "chain_without_compaction",
    ),
    Mutant(
        "cells of a bucket delete rows of a part without a merge",
        "encoding/tables/deletions.py",
        (("    if len(deletions) == 1:\n", "    if True:\n"),),
        "chain_without_compaction",
        buckets=1,
    ),
    Mutant(
        "deletion vectors of an earlier attempt are committed unseen",
        "storage/deletion_vector.py",
        (("        if store.get(_name(name)) == content:\n", "        if True:\n"),),
        "deletion_vectors_are_damaged_before_their_commit",
        buckets=1,
    ),
    Mutant(
        "vacuum deletes deletion vectors",
        "operations/maintenance/vacuum.py",
        ((" | live_rows.vector_files(files)", ""),),
        "chain_without_compaction",
    ),
    Mutant(
        "changed document keeps its old vector",
        "encoding/cells/known_rows.py",
        (
            (
                'pc.fill_null(pc.equal(self.superseded["content_hash"].take(places), hashes), False)',
                'pc.is_valid(self.superseded["content_hash"].take(places))',
            ),
            ("np.flatnonzero(new == old)", "np.arange(len(new))"),
        ),
        "chain_without_faults",
    ),
    Mutant(
        "vacuum ignores the retention",
        "operations/maintenance/vacuum.py",
        (("if entry.modified < horizon and entry.name not in kept]", "if entry.name not in kept]"),),
        "vacuum_meets_new_parts",
    ),
    Mutant(
        "vacuum deletes kept versions",
        "operations/maintenance/vacuum.py",
        (("for version in set(keep_versions):", "for version in set[int]():"),),
        "vacuum_keeps_named_versions",
    ),
    Mutant(
        "vacuum deletes parts that were reused since it listed them",
        "operations/maintenance/vacuum.py",
        (("if current is not None and current.modified == listed.modified:", "if current is not None:"),),
        "vacuum_lists_parts_that_are_reused",
    ),
    Mutant(
        "compaction keeps deleted rows",
        "operations/maintenance/compact.py",
        (
            ("= read_part(store, file)", "= read_part(store, type(file)(file.path, file.size, file.rows, {}))"),
            ("        if file.live_rows is not None and table.num_rows != file.live_rows:\n", "        if False:\n"),
        ),
        "chain_without_faults",
    ),
    Mutant(
        "compaction brings rows back that were deleted in the meantime",
        "operations/maintenance/compact.py",
        (("file.path in current and current[file.path] == file.deleted", "file.path in current"),),
        "deletions_are_committed_before_a_compaction",
    ),
    Mutant(
        "deletions are tried at several versions",
        "encoding/tables/deletions.py",
        (
            (
                "    if not store.put_new(delta_log.commit_name(at), data):\n",
                "    while not store.put_new(delta_log.commit_name(at), data):\n        at += 1\n    if False:\n",
            ),
        ),
        "compaction_commits_before_deletions",
    ),
    Mutant(
        "compaction drops a row",
        "operations/maintenance/compact.py",
        (("write_part(store, folder, rows.sort_by(", "write_part(store, folder, rows[1:].sort_by("),),
        "chain_without_faults",
    ),
    Mutant(
        "deleted rows are not committed",
        "encoding/commit/committer.py",
        (("table, adds, whole, result.wave, vectors)", "table, adds, whole, result.wave, {})"),),
        "chain_without_compaction",
    ),
    Mutant(
        "deletion vectors are not checked before their commit",
        "encoding/commit/committer.py",
        (
            (
                "        deletion_vector.check_vectors(table, (deletion.vector for deletion in cell.deletions))\n",
                "        pass\n",
            ),
        ),
        "deletion_vectors_are_damaged_before_their_commit",
        buckets=1,
    ),
)
