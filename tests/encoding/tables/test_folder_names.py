"""Names of the folders of local tables: every accepted one works with delta-rs, and the others are refused."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import ConfigError, StorageError
from lsr_prod.storage.location import table_problem
from tests.encoding.made_tables import make_cell, make_tables

NAMES = [f"a{chr(code)}b" for code in range(ord(" "), 127) if chr(code) != "/"]
NAMES += ["é日", "50%25", "%2f", "%e9", "a%%25", "a%4", "..a", "a\u2028b", "a\tb"]


@pytest.mark.long
@pytest.mark.parametrize("refused", [False, True])
def test_accepted_names_work_and_the_others_are_refused(tmp_path: Path, refused: bool) -> None:
    names = [name for name in NAMES if (table_problem(f"/{name}") is not None) == refused]
    assert "50%25" in names if refused else "a%b" in names
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        place = folder / name
        if refused:
            with pytest.raises(StorageError, match="use a folder of another name"):
                make_tables(place)
            assert not folder.exists()
            continue
        table, quarantine = make_tables(place)
        cell = make_cell(table, quarantine, 0, "ab")
        snapshot = open_table(table)
        assert snapshot is not None
        snapshot.commit([(part, {"bucket": "0"}) for part in cell.parts], [], app="p", version=0, epoch=1)
        found = open_table(table)
        assert found is not None
        assert sum(file.rows for file in found.files()) == 2
        assert list(folder.iterdir()) == [place]
        assert {one.name for one in place.iterdir()} == {"quarantine", "table"}


def test_source_table_with_such_a_name_is_a_config_error(tmp_path: Path) -> None:
    make_tables(tmp_path / "good")
    (tmp_path / "good").rename(tmp_path / "50%25")
    paths = [str(tmp_path / "50%25" / "table")]
    with pytest.raises(ConfigError, match=r"source\.paths: delta-rs does not open .*50%25"):
        list(resolve_source(SourceSettings(paths=paths), {}))


@pytest.mark.long
@pytest.mark.parametrize("field", ["table", "quarantine"])
def test_encode_refuses_the_name_before_it_writes(tiny_bundle: Path, tmp_path: Path, field: str) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "a lock"}\n')
    encode = {"bundle": str(tiny_bundle), "table": str(tmp_path / "table"), field: str(tmp_path / "back\\slash")}
    settings = {"source": {"paths": [str(tmp_path / "corpus.jsonl")]}, "encode": encode}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(settings))
    before = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "lsr_prod", "encode", "--config", str(tmp_path / "d.yaml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith(f"lsr-prod encode: encode.{field}: ")
    assert "use a folder of another name" in line
    assert sorted(tmp_path.iterdir()) == before
