"""Encode runs, imports, training sets and mined negatives write one quarantine schema."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.corpus.source_rows import BadRow, row_schema
from lsr_prod.encoding.tables.quarantine_rows import PART_SCHEMA, quarantine_folder, write_quarantine
from lsr_prod.storage import Store
from lsr_prod.training.data.parts import quarantine_name
from lsr_prod.training.data.row_parts import QUARANTINE
from lsr_prod.training.negatives.inputs import KnownPositives, cut_pairs
from lsr_prod.training.negatives.mine import Miner, mine_slice
from lsr_prod_contrib.vectors.table_import import ImportQuarantine
from tests.training.negatives.conftest import settings
from tests.training.sets import part_maker, write_part


def encode_run(folder: Path) -> Path:
    row = {"file": 0, "position": 3, "reason": "broken_json", "source_key": 7, "source": "s", "raw": "{"}
    write_quarantine(Store(str(folder)), "p", 1, pa.Table.from_pylist([row], schema=row_schema(["title"])))
    return folder / quarantine_folder("p", 1)


def import_run(folder: Path) -> Path:
    quarantine = ImportQuarantine(Store(str(folder)), "p")
    quarantine.add(BadRow("broken_json", "d", None, "{"), ordinal=0, key=7, source="s", position=3)
    quarantine.flush()
    return folder / quarantine_folder("p", 0)


def training_set(folder: Path) -> Path:
    maker = part_maker(folder, "pairs")
    maker.make(1, write_part(folder, 0, "pairs", [{"query": "1", "positive": "2"}]))
    return folder / "store" / quarantine_name(maker.digest) / quarantine_folder(maker.digest, 1)


def mined_negatives(folder: Path) -> Path:
    (folder / "pairs.jsonl").write_text(json.dumps({"query": "", "pid": "x"}))
    section = settings("index", folder / "pairs.jsonl", folder / "out")
    nothing = KnownPositives.of([])
    miner = Miner(None, section, nothing, None)  # type: ignore[arg-type]
    (piece,) = cut_pairs(section, {})
    mine_slice(miner, Store(str(folder / "out")), "p", 1, piece)
    return folder / "out" / QUARANTINE / quarantine_folder("p", 1)


@pytest.mark.parametrize("write", [encode_run, import_run, training_set, mined_negatives])
def test_every_job_writes_the_quarantine_schema(tmp_path: Path, write):
    (path,) = write(tmp_path).iterdir()
    assert pq.read_schema(path).equals(PART_SCHEMA)
    assert pq.read_table(path, partitioning=None).num_rows == 1
