"""The queries of the page on DuckDB and Polars read the documents of a table, without those that it has deleted."""

import os
from pathlib import Path

import pytest

from lsr_prod.storage import Store
from tests.docs.code_blocks import Terminal, blocks, delta_extension
from tests.encoding.made_tables import make_cell, make_tables, newest
from tests.encoding.tables.deletions import delete_ids

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "query-the-table.md"


@pytest.fixture
def folder(tmp_path: Path, tiny_bundle: Path) -> Path:
    """A folder with a table of the documents a, c and d, each with the terms 1 and 5; b is deleted."""
    table, quarantine = make_tables(tmp_path)
    cells = [make_cell(table, quarantine, 0, ids, cell=cell) for cell, ids in enumerate(("abc", "d"))]
    adds = [(part, {"bucket": str(cell.bucket)}) for cell in cells for part in cell.parts]
    newest(table).commit(adds, [], app="p", version=0, epoch=1)
    delete_ids(Store(str(tmp_path / "table")), "b")
    (tmp_path / "bundle").symlink_to(tiny_bundle)
    return tmp_path


def test_queries_count_no_deleted_document(folder: Path) -> None:
    terminal = Terminal(folder, os.environ)
    found = {block.text: terminal.run(block) for block in blocks(PAGE, {"delta": str(delta_extension())}) if block.runs}
    printed = "\n".join(found.values())
    assert printed.count(" 3 ") >= 2  # documents of DuckDB, of Polars
    names = terminal._names
    assert names["frequent"] == [(1, 3), (5, 3)]
    assert (names["doc_id"], names["heaviest"]) == ("a", [(1, 2), (5, 1)])
    assert names["best"] == [("a", 3.0), ("c", 3.0), ("d", 3.0)]
    assert names["frequencies"].sort("term").collect().rows() == names["frequent"]
    assert names["empty"].height == 0
