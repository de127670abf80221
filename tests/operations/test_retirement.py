"""Tables of earlier bundles are deleted once no version of the index names them, however their folder is spelled."""

from pathlib import Path

import pytest

from lsr_prod.indexing import build_index
from lsr_prod.operations.table_generations import register_table, retire_tables
from lsr_prod.storage import Store
from lsr_prod.storage.publications import read_publication
from tests.indexing.corpus import Doc, make_bundle, make_table
from tests.indexing.test_build import deployment

pytestmark = pytest.mark.usefixtures("ray_local")


def test_table_of_a_kept_version_stays_although_its_folder_is_a_link(tmp_path: Path) -> None:
    data, link = tmp_path / "data", tmp_path / "link"
    data.mkdir()
    link.symlink_to(data)
    make_bundle(data / "bundle", ["a", "b"])
    make_bundle(data / "other", ["a", "c"])
    first, second = Store(str(data / "table")), Store(str(data / f"table-{'f' * 12}"))
    make_table(Path(first.uri), {"d": Doc({1: 2}, "x")}, data / "bundle")
    build_index(deployment(link))  # names link/table
    register_table(first, second)
    make_table(Path(second.uri), {"d": Doc({1: 3}, "y")}, data / "other")
    build_index(deployment(data, table=second.uri, bundle=str(data / "other")))
    index = Store(str(data / "index"))
    assert retire_tables(index, first, second, age_s=0).tables == 0
    assert list((data / "table").rglob("*.parquet"))
    (data / "index" / "versions" / f"{publication(index, 1)}.json").unlink()  # as the garbage collection does
    assert retire_tables(index, first, second, age_s=0).tables == 1
    assert not list((data / "table").rglob("*.parquet"))


def publication(index: Store, number: int) -> str:
    return read_publication(index, number).version
