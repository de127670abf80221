"""The modules that are mutated, and the tests that may detect their mutants."""

from collections.abc import Iterable
from pathlib import Path

__all__ = ["SLOW_FIXTURES", "SLOW_TESTS", "TARGETS", "files_of_tests", "modules"]

TARGETS: dict[str, tuple[str, ...]] = {
    "encoding/commit": ("tests/encoding/commit", "tests/encoding/cells/test_duplicates.py"),
    "encoding/cells": ("tests/encoding/cells", "tests/encoding/commit/test_markers.py"),
    "encoding/plans": (
        "tests/encoding/plans",
        "tests/encoding/commit/test_give_up.py",
        "tests/encoding/cells/test_duplicates.py",
    ),
    "encoding/tables": ("tests/encoding/tables", "tests/encoding/commit/test_committer.py"),
    "indexing/derive.py": ("tests/indexing/test_derive.py", "tests/indexing/test_takedown.py"),
    "indexing/publish.py": (
        "tests/indexing/test_publish.py",
        "tests/indexing/test_gates.py",
        "tests/indexing/test_versions.py",
    ),
    "indexing/tombstones.py": ("tests/indexing/test_tombstones.py",),
    "indexing/garbage.py": (
        "tests/indexing/test_garbage_files.py",
        "tests/indexing/test_garbage.py",
        "tests/indexing/test_retention.py",
    ),
    "storage/publications.py": (
        "tests/storage/test_publications.py",
        "tests/storage/test_signatures.py",
        "tests/storage/test_pins.py",
    ),
    "storage/version_locks.py": ("tests/storage/test_version_locks.py",),
    "storage/drafts.py": ("tests/storage/test_drafts.py",),
    "storage/deletion_vector.py": ("tests/storage/test_deletion_vector.py", "tests/encoding/tables/test_deletions.py"),
}
"""Module or folder below ``lsr_prod`` -> files and folders of tests."""

SLOW_FIXTURES = frozenset({"ray_local", "s3_options", "splade_tiny", "tiny_bundle", "tiny_model"})
"""Fixtures that start Ray or a server, or need a model: their tests detect no mutants."""

SLOW_TESTS = frozenset(
    {
        "test_cell_with_more_than_two_gigabytes_of_text_is_encoded",
        "test_each_kind_of_failure_has_its_reason_and_bounded_process_starts",
        "test_chain_of_increments_equals_full_encode_or_is_refused",
        "test_memory_of_a_plan_is_bounded_by_its_arrow_columns",
    }
)
"""Tests that take longer than all others of their files together."""


def modules(root: Path, selected: Iterable[str] = ()) -> list[str]:
    """Return the paths of the mutated modules below the package.

    Args:
        root: folder of the package.
        selected: modules or folders; empty: all.
    """
    found = []
    for target in TARGETS:
        paths = [root / target] if target.endswith(".py") else sorted((root / target).glob("*.py"))
        found += [path.relative_to(root).as_posix() for path in paths]
    chosen = [file for file in found if not selected or any(_is_below(file, each) for each in selected)]
    if not chosen:
        raise ValueError(f"no mutated module is in {', '.join(selected)}; modules are in {', '.join(TARGETS)}")
    return chosen


def files_of_tests(file: str) -> tuple[str, ...]:
    """Return the files and folders of the tests of a module."""
    return next(tests for target, tests in TARGETS.items() if _is_below(file, target))


def _is_below(file: str, target: str) -> bool:
    return file == target or file.startswith(f"{target.rstrip('/')}/")
