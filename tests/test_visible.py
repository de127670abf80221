"""Text from data cannot act on a terminal, and only one module decides what reaches it."""

import ast
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.logs import json_line, visible

ROOT = Path(__file__).parents[1]
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
FORBIDDEN = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *BIDI, "\u2028", "\u2029", "\u200b", "\u2060"]
FORBIDDEN += ["\ufeff", "\xad", "\ud800", "\udfff", "\U000e0041", "\ufff9", "\u3164", "\u115f"]
# Modules that may write to the streams of the process.
WRITERS = {f"lsr_prod/jobs/terminal/{name}.py" for name in ("output", "tables")}
BARS = {"lsr_prod/encoding/progress.py", "lsr_prod/training/observers/progress.py"}  # they show no text from data


@pytest.mark.parametrize("one", FORBIDDEN, ids=lambda one: f"U+{ord(one):04X}")
def test_character_that_acts_or_hides_is_escaped(one: str) -> None:
    shown = visible(f"a{one}b")
    assert one not in shown
    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert json.loads(json_line(one)) == one
    assert json_line(one).isascii()
    assert json_line(one).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "plain \\ text",
        "naïve café, ½ ± µ\xa0m",
        "می‌خواهم",  # Persian, with a non-joiner
        "क्‍ष और क्‌ष",  # Hindi, with a joiner and a non-joiner
        "👩‍👩‍👧 🏳️‍🌈 ❤️",
        "עברית عربي",
        "日本語 한국어 ไทย",
        "\u0600١٢",  # a sign of the category "format" that is drawn
    ],
)
def test_text_of_every_script_is_unchanged(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("text", ["pay\u200dpal", "\u200d", "a\u200cb", "ی\u200c\u200c\u200cx"])
def test_joiner_that_joins_nothing_is_escaped(text: str) -> None:
    assert "\\u200" in visible(text)
    assert "\u200c\u200c" not in visible(text)


def test_line_breaks_stay_only_on_request() -> None:
    assert visible("a\nb\r\n") == "a\\nb\\r\\n"
    assert visible("a\nb\r\n", lines=True) == "a\nb\\r\n"


@given(st.text(st.characters(codec=None)))
def test_no_text_leaves_a_character_that_acts(text: str) -> None:
    shown = visible(text)
    assert not set(shown) & set(FORBIDDEN)
    assert not any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in shown)
    assert visible(shown) == shown
    if not any("\ud800" <= one <= "\udfff" for one in text):  # JSON reads two halves as one character
        assert json.loads(json_line(text)) == text


def test_json_has_null_for_numbers_that_json_lacks() -> None:
    assert json_line({"a": float("nan"), "b": [float("inf"), 1.5], "c": (-float("inf"),)}) == (
        '{"a": null, "b": [null, 1.5], "c": [null]}'
    )


def test_only_the_modules_of_the_terminal_write_to_it() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("lsr_prod", "lsr_prod_contrib", "quickstart", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if any(map(_writes, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    # What quickstart/ prints by itself are the names of its stages and folders.
    assert {path for path in found if not path.startswith("quickstart/")} == WRITERS | BARS


def _writes(node: ast.AST) -> bool:
    """Return whether a node is print(), a console of Rich, or a stream of the process that is written or handed on."""
    match node:
        case ast.Call(func=ast.Name(id="print" | "Console" | "StreamHandler")):
            return True
        case ast.Call(func=ast.Attribute(attr="StreamHandler")):
            return True
        case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"):
            return True
    return False
