"""Every code block of the README, the tutorial and the how-to pages runs, in order, in one folder."""

import os
import socket
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from quickstart.models import cache_folder
from tests.docs.code_blocks import RUN, Block, Terminal, blocks, delta_extension
from tests.indexing.corpus import Doc, encode_corpus, make_index

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    DOCS / "tutorial.md",
    *(
        DOCS / "how-to" / f"{name}.md"
        for name in (
            "hybrid",
            "filters",
            "embed",
            "fine-tune",
            "harnesses",
            "nightly",
            "agents",
            "applications",
            "orchestrate",
            "ray-data",
            "query-the-table",
            "migrate-from-anserini",
            "migrate-from-opensearch",
            "migrate-from-qdrant",
        )
    ),
    ROOT / "README.md",
]
NOT_RUN = {
    "README.md": 2,
    "tutorial.md": 1,
    "agents.md": 2,
    "applications.md": 1,
    "embed.md": 1,
    "fine-tune.md": 2,
    "harnesses.md": 1,
    "nightly.md": 1,
    "query-the-table.md": 1,
    "migrate-from-opensearch.md": 1,
    "migrate-from-qdrant.md": 1,
}
"""Number of blocks that are marked as not run: a new one is a decision."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with the checkout in ``lsr-prod`` and the folder ``search``, as the pages assume."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "search").mkdir()
    (folder / "lsr-prod").mkdir()
    for path in ROOT.iterdir():
        (folder / "lsr-prod" / path.name).symlink_to(path)
    if not (folder / "lsr-prod" / ".venv").exists():
        (folder / "lsr-prod" / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def environment(home: Path) -> Iterator[dict[str, str]]:
    """The environment of shells: every job starts a Ray of its own, as for a reader."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSR_PROD_MODELS", str(cache_folder()))
        patch.setenv("HOME", str(home))
        patch.setenv("PATH", sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
        yield dict(os.environ)


@pytest.fixture(scope="module")
def terminal(home: Path, environment: dict[str, str]) -> Terminal:
    return Terminal(home / "search", environment)


def make_stand_in(folder: Path) -> None:
    """Make ``.quickstart`` with the bundle of the tutorial, and an index with the attributes that the README names."""
    bundle = folder / ".quickstart" / "bundle"
    bundle.parent.mkdir()
    bundle.symlink_to(folder / "bundle")
    name = "datetime.date.fromisoformat"
    encoded = encode_corpus(bundle, {name: "Parse a date in ISO format.", "time.strptime": "Parse a string to a date."})
    corpus = {one: Doc(doc.terms, doc.text, {"year": "2024", "lang": "en"}) for one, doc in encoded.items()}
    make_index(
        bundle.parent / "index", corpus, bundle=bundle, bm25=True, attributes={"year": "int64", "lang": "string"}
    )


def values() -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {"port": str(probe.getsockname()[1]), "delta": str(delta_extension())}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_the_page_runs(
    page: Path, home: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    if page.name == "README.md":
        make_stand_in(home / "search")
    terminal.new_session()
    for block in blocks(page, values()):
        if block.runs or block.title:
            terminal.run(block)


def test_few_blocks_are_marked_as_not_run() -> None:
    marked = {page.name: [block for block in blocks(page, values()) if block.not_run] for page in PAGES}
    assert {name: len(found) for name, found in marked.items() if found} == NOT_RUN


def test_all_pages_with_commands_are_run() -> None:
    assert {*DOCS.glob("how-to/*.md")} <= {*PAGES}


def test_a_block_has_a_language_that_says_what_a_reader_does_with_it() -> None:
    known = RUN | {"json", "yaml", "text", ""}  # without a language: what a command prints
    assert [block.page for page in PAGES for block in blocks(page, values()) if block.language not in known] == []


def write(folder: Path, markdown: str) -> list[Block]:
    page = folder / "page.md"
    page.write_text(markdown)
    return blocks(page)


def test_failing_command_in_the_middle_of_a_block_fails_with_page_and_line(tmp_path: Path) -> None:
    (block,) = write(tmp_path, "# Page\n\n```bash\nfalse\ntrue\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:3 ended with 1"):
        Terminal(tmp_path, os.environ).run(block)


def test_comment_replaces_a_text_of_the_block_and_refuses_one_that_is_absent(tmp_path: Path) -> None:
    (block,) = write(tmp_path, "<!-- test: 2 for 200 -->\n```python\nsteps = 200\n```\n")
    assert block.text == "steps = 2\n"
    with pytest.raises(ValueError, match="'300' is not in the block"):
        write(tmp_path, "<!-- test: 2 for 300 -->\n```python\nsteps = 200\n```\n")


def test_titled_block_is_saved_as_a_file_and_names_live_until_the_next_page(tmp_path: Path) -> None:
    page = '```yaml title="a.yaml"\nkey: 1\n```\n```bash\ncat a.yaml\n```\n```python\nn = 3\n```\n'
    page += "```python\nprint(n)\n```\n"
    terminal = Terminal(tmp_path, os.environ)
    assert [terminal.run(block) for block in write(tmp_path, page)] == ["", "key: 1\n", "", "3\n"]
    terminal.new_session()
    with pytest.raises(NameError):
        terminal.run(write(tmp_path, page)[-1])
