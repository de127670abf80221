"""docs/security.md lists what the tests of listeners know."""

import re
from pathlib import Path

from tests.listeners import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_table_of_listeners_has_the_kinds_of_the_tests() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Listeners")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)
    assert set(rows) - {"listener"} == set(KINDS)
