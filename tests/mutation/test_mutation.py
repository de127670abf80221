"""Mutants are named after code and not after lines, some are detected, and the list of survivors is current."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.__main__ import ROOT
from tests.mutation.operators import find_mutants, mutated_code
from tests.mutation.survivors import known_survivors, unknown_entries
from tests.mutation.targets import files_of_tests, modules

CODE = """
class Counter:
    def add(self, number):
        if number < 0 or number > self.limit:
            raise ValueError("a message")
        self.total(number)
        log.info("added", extra={"n": 1 if number else 0})
        return number, [each for each in range(number) if each % 2]
"""
MOVED = '''
# A comment.


class Counter:
    """A docstring."""

    def add(self, number):
        # A comment.
        if (
            number < 0 or
            number > self.limit
        ): raise ValueError("another message")
        self.total( number )
        log.info("added", extra={"n": 1 if number else 0})
        return number, [each for each in range(number) if each % 2]
'''
CHANGES = [
    "negate number < 0 or number > self.limit",
    "from number < 0 or number > self.limit remove number < 0",
    "from number < 0 or number > self.limit remove number > self.limit",
    "remove raise ValueError",
    "remove self.total(number)",
    "return None for number",
    "return None for [each for each in range(number) if each % 2]",
    "negate each % 2",
    "always each % 2",
]
ONCE_MISSED = [
    "encoding/commit/fence.py Epoch.check: remove raise FencedError (2)",
    "encoding/commit/markers.py _base: return None for result.follows",
    "encoding/commit/committer.py check_for_commit: remove _touch(table, path)",
    "encoding/commit/committer.py Committer._commit_quarantine: from not adds and (not before) remove not before",
    "encoding/commit/committer.py _check_deletions: from path not in files or _vector_id(files[path]) != "
    "deletion.before remove _vector_id(files[path]) != deletion.before",
]


def run(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.mutation", *arguments]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("code", [CODE, MOVED])
def test_names_of_mutants_depend_on_neither_lines_nor_messages(tmp_path: Path, code: str) -> None:
    (tmp_path / "counter.py").write_text(code)
    mutants = find_mutants(tmp_path, "counter.py")
    assert [mutant.name for mutant in mutants] == [f"counter.py Counter.add: {change}" for change in CHANGES]
    for mutant in mutants:
        assert mutated_code(tmp_path, mutant).co_qualname == "Counter.add"


def test_equal_code_of_a_function_is_numbered(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text("def twice():\n    call()\n    call()\n")
    names = [mutant.name for mutant in find_mutants(tmp_path, "twice.py")]
    assert names == ["twice.py twice: remove call()", "twice.py twice: remove call() (2)"]


def test_every_module_has_tests_and_every_listed_survivor_is_a_mutant_with_a_reason() -> None:
    mutants = [mutant for file in modules(ROOT) for mutant in find_mutants(ROOT, file)]
    assert len(mutants) >= 400
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    assert unknown_entries(mutants) == []
    assert all(len(reason.split()) >= 5 for reason in known_survivors().values())
    for file in modules(ROOT):
        assert all(Path(__file__).parents[2].joinpath(path).exists() for path in files_of_tests(file)), file
    with pytest.raises(ValueError, match=r"no mutated module is in encoding/tables/no\.py"):
        modules(ROOT, ["encoding/tables/no.py"])


@pytest.mark.parametrize(
    ("files", "sample"),
    [
        (["storage/version_locks.py"], 8),
        pytest.param(
            ["storage/drafts.py", "storage/publications.py", "storage/version_locks.py"], 110, marks=pytest.mark.slow
        ),
    ],
)
def test_sample_of_the_mutants_is_detected(files: list[str], sample: int) -> None:
    code, output = run("--module", *files, "--sample", str(sample), "--seed", "1")
    result = json.loads(output.rpartition("RESULT ")[2])
    assert code == 0, output[-4000:]
    assert result["mutants"] == sample


@pytest.mark.slow
def test_rules_that_tests_once_missed_are_protected() -> None:
    code, output = run("--only", *ONCE_MISSED)
    result = json.loads(output.rpartition("RESULT ")[2])
    assert code == 0, output[-4000:]
    assert result["killed"] == len(ONCE_MISSED)


@pytest.mark.long
def test_code_that_no_test_protects_is_reported() -> None:
    code, output = run("--module", "storage/publications.py", "--only", "pin_publication:", "--budget", "-1")
    assert code == 1
    assert "SURVIVED storage/publications.py pin_publication: remove raise PublicationError" in output
    assert '"killed": 0' in output
