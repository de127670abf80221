"""The commands of docs/deploy.md, section by section."""

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGE", "START", "Block", "blocks", "script"]

PAGE = Path(__file__).parents[3] / "docs" / "deploy.md"
START = "Before you start"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOCAL = re.compile(r"^(?:echo .* \| )?lsr-prod .*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of the page.

    Attributes:
        section: heading of the second level that it is below.
        line: of the page, 1 for the first.
        language: what the fence says.
        text: its lines.
    """

    section: str
    line: int
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of the page in their order."""
    found = []
    for fence in _FENCE.finditer(page):
        before = page[: fence.start()]
        section = re.findall(r"^## (.*)$", before, re.MULTILINE)[-1]
        found.append(Block(section, before.count("\n") + 2, fence[1], fence[2]))
    return found


def script(section: str, *, quick: bool = False) -> str:
    """Return the preparation and a section as one script that ends at the first command that fails.

    Each block begins as in a new terminal: no variable of another block is set.

    Args:
        section: its heading.
        quick: leave out the lines that run ``lsr-prod`` on this computer.
    """
    chosen = [block for block in blocks(PAGE.read_text()) if block.section in (START, section)]
    assert {block.section for block in chosen} == {START, section}, section
    lines = ["set -euo pipefail"]
    for block in chosen:
        text = _LOCAL.sub(":", block.text) if quick else block.text
        lines += [f"echo '::: docs/deploy.md:{block.line}'", f"(\nset -x\n{text})"]
    return "\n".join(lines) + "\n"
