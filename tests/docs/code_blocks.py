"""Code blocks of Markdown pages, and a terminal that runs them as a reader would.

A reader types blocks of ``bash`` and ``python`` in their order, and saves blocks with ``title="NAME"`` as files. A
comment above a block says how the test differs from the reader: ``<!-- not run: REASON -->``, or
``<!-- test: NEW for OLD, … -->`` for fewer documents or steps.
"""

import contextlib
import io
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb_extension_delta

__all__ = ["Block", "Terminal", "blocks", "delta_extension"]

_FENCE = re.compile(
    r"^(?:<!-- (?P<marker>.*?) -->\n)?```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RUN = {"bash", "python"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: file name and line, for messages.
        language: what the fence says.
        title: name of the file that a reader saves it as, or "".
        text: its lines, as the test runs them.
        not_run: reason why the test does not run it, or "".
    """

    page: str
    language: str
    title: str
    text: str
    not_run: str

    @property
    def runs(self) -> bool:
        """Return whether the test runs the block."""
        return self.language in RUN and not self.title and not self.not_run


def blocks(page: Path, values: Mapping[str, str] | None = None) -> list[Block]:
    """Return the blocks of a page in their order.

    Args:
        page: Markdown file.
        values: of the names in braces of ``test:`` comments.

    Raises:
        ValueError: a comment above a block is of no known kind, or replaces a text that the block does not have.
    """
    markdown, found = page.read_text(), []
    for fence in _FENCE.finditer(markdown):
        where = f"{page.name}:{markdown[: fence.start('text')].count(chr(10))}"
        text, reason = fence["text"], ""
        kind, _, content = (fence["marker"] or "").partition(": ")
        if kind == "not run":
            reason = content
        elif kind == "test":
            for change in content.format_map(values or {}).split(", "):
                new, _, old = change.partition(" for ")
                if old not in text:
                    raise ValueError(f"{where}: {old!r} is not in the block")
                text = text.replace(old, new)
        elif kind:
            raise ValueError(f"{where}: {kind!r} is neither 'test' nor 'not run'")
        found.append(Block(where, fence["language"], fence["title"] or "", text, reason))
    return found


def delta_extension() -> Path:
    """Return the extension of DuckDB that reads Delta tables: nothing is downloaded in a test."""
    (path,) = Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    return path


class Terminal:
    """A folder in which blocks run, with an environment for shells, and one Python session per page."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Begin in an empty session."""
        self._folder = folder
        self._environment = dict(environment)
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def new_session(self) -> None:
        """Forget the names that Python blocks have set."""
        self._names = {"__name__": "__main__"}

    def run(self, block: Block) -> str:
        """Run a block, or save it under its title; return what it printed.

        Raises:
            AssertionError: a command of a shell block failed.
        """
        if block.title:
            (self._folder / block.title).write_text(block.text)
            return ""
        return self._bash(block) if block.language == "bash" else self._python(block)

    def _bash(self, block: Block) -> str:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{block.page} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        before = Path.cwd()
        os.chdir(self._folder)
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, block.page, "exec"), self._names)
        finally:
            os.chdir(before)
        return printed.getvalue()
