"""YAML files that are refused."""

from itertools import pairwise
from pathlib import Path

import pytest

from lsr_prod.config.load import read_yaml
from lsr_prod.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key a is given twice"),
        ("index:\n  dk: 1\n  dk: 2\n", "line 3: the key dk is given twice"),
        ("- {a: 1, a: 1}\n", "line 1: the key a is given twice"),
        ("a: [1\n", "is not YAML"),
        ("{[1]: 2}: 3\n", "line 1: a key is no text; write it in quotes"),
        ("a: {}\n1: 2\n", "line 2: a key is no text; write it in quotes"),
        ("null: 2\n", "line 1: a key is no text"),
        ("on: 1\n", "line 1: a key is no text"),
        ("a:\n  yes: 1\n", "line 2: a key is no text"),
        ("2020-01-01: 1\n", "line 1: a key is no text"),
        ("a: !!timestamp x\n", "a value does not have the form of its tag"),
        ("a: !!bool x\n", "a value does not have the form of its tag"),
        ("a: !!int ''\n", "a value does not have the form of its tag"),
        ("a: !!python/object/apply:os.system [ls]\n", "is not YAML"),
        ("[" * 100_000, "is not YAML"),
        ("a: &a [*a]\n", "an alias stands inside of its own anchor"),
        (
            "a: &a [x, x, x, x, x, x, x, x]\n"
            + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 8)}]\n" for a, b in pairwise("abcdefghijkl")),
            "aliases make more than 100,000 values of it",
        ),
        ("x" * 1_000_001, "has 1,000,001 bytes"),
        ("\udcff", "is not YAML"),
        ("export:\n  output: 2024-02-30\n", "is not YAML"),
        ("0b_", "is not YAML"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, text: str, problem: str):
    path = tmp_path / "deployment.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=problem) as caught:
        read_yaml("--config", path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("hunter2: x", "line 3: mapping values are not allowed here"),
        ("*hunter2", "line 3: found undefined alias"),
        ("!hunter2", "line 3: could not determine a constructor for the tag"),
        ("!hunter2!x", "line 3: found undefined tag handle"),
        ('"hunter2', "line 4: found unexpected end of stream"),
        ("{hunter2", "line 4: expected ',' or '}', but got '<stream end>'"),
        ("%hunter2", "line 3: found character '%' that cannot start any token"),
        ('"\\hunter2"', "line 3: found unknown escape character 'h'"),
    ],
)
def test_text_of_a_broken_line_is_not_repeated_because_it_may_be_a_credential(tmp_path: Path, value: str, problem: str):
    path = tmp_path / "deployment.yaml"
    path.write_text(f"storage:\n  options:\n    aws_secret_access_key: {value}\n")
    with pytest.raises(ConfigError) as caught:
        read_yaml("--config", path)
    assert str(caught.value) == f"--config: {path} is not YAML ({problem}); fix the file"


def test_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"--cluster.*cannot be read"):
        read_yaml("--cluster", tmp_path / "none.yaml")


def test_merged_keys_are_no_duplicates(tmp_path: Path):
    path = tmp_path / "deployment.yaml"
    path.write_text("base: &base {a: 1, b: 2}\nmore: {<<: *base, a: 3}\n")
    assert read_yaml("--config", path)["more"] == {"a": 3, "b": 2}
