"""The encoder actor, called in this process with a real bundle."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.config import EncodeSettings
from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.actors.actor import EncoderActor, ModelSettings
from lsr_prod.encoding.cells.lookup import WaveTask, with_row_counts
from lsr_prod.encoding.commit.markers import finished_cells
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.passages import document_factory
from lsr_prod.encoding.tables.sparse_table import committed_files
from lsr_prod.errors import IncompleteWaveError
from lsr_prod.inference import BundleEncoder
from tests.encoding.made_tables import PROPERTIES, make_tables, newest
from tests.encoding.pinned import pin
from tests.encoding.poison_encoder import poison_factory


def wave(folder: Path) -> WaveTask:
    table, quarantine = make_tables(folder)
    return WaveTask("p", 0, 2, table, quarantine, PROPERTIES, committed_files(newest(table)))


def rows(*cells: int) -> pa.Table:
    """One document per entry of ``cells``, and the row counts of the two cells."""
    records = [
        {"cell": c, "file": 0, "source_key": 1, "source": "c", "position": i, "doc_id": f"d{i}", "text": f"fox {i}"}
        for i, c in enumerate(cells)
    ]
    table = pa.Table.from_pylist(records, schema=row_schema(()))
    return pa.concat_tables(with_row_counts([table], (0, 1), table.schema))


def bundle_factory(bundle: Path) -> EncoderFactory:
    settings = EncodeSettings(bundle="b", table="t", store_k=PROPERTIES.store_k, batch_tokens=256)
    return document_factory(pin(bundle), settings)


def actor(factory: EncoderFactory) -> EncoderActor:
    return EncoderActor(ModelSettings(factory, batch_timeout_s=60, document_timeout_s=30))


def test_actor_encodes_a_block_cell_by_cell(tmp_path: Path, tiny_bundle: Path, ray_local: None):
    task = wave(tmp_path)
    result = actor(bundle_factory(tiny_bundle)).encode(task, {}, rows(0, 1, 1, 0, 1), isolated=False)
    assert [(cell.cell, cell.counts.rows_in, cell.encoded) for cell in result.cells] == [(0, 2, 2), (1, 3, 3)]
    assert 0 < result.counts.tokens <= result.counts.padded_tokens
    expected = BundleEncoder(tiny_bundle).encode(["fox 0", "fox 3"], kind="document", top_k=PROPERTIES.store_k)
    (part,) = result.cells[0].parts
    found = pq.read_table(Path(task.table.uri) / part.path, partitioning=None)["terms"].to_pylist()
    assert found == [expected.row(i)[0].tolist() for i in range(2)]


def test_finished_cells_are_marked_and_a_second_attempt_reuses_them(tmp_path: Path, ray_local: None):
    task, encoder = wave(tmp_path), actor(poison_factory())
    first = encoder.encode(task, {}, rows(0, 0, 1), isolated=False)
    done = finished_cells(task.table, task.quarantine, "p", 0)
    assert {cell: result.parts for cell, result in done.items()} == {c.cell: c.parts for c in first.cells}
    again = encoder.encode(task, {}, rows(0, 0, 1), isolated=False)
    assert [cell.reused for cell in (*first.cells, *again.cells)] == [False, False, True, True]


@pytest.mark.parametrize("lost", [0, 3, 4])
def test_cell_with_a_missing_row_or_row_count_is_neither_encoded_nor_marked(tmp_path: Path, ray_local: None, lost: int):
    task, encoder = wave(tmp_path), actor(poison_factory())
    whole = rows(1, 1, 0)  # the row counts of cells 0 and 1 come last
    short = pa.concat_tables([whole.slice(0, lost), whole.slice(lost + 1)])
    with pytest.raises(IncompleteWaveError, match="arrived; nothing was committed"):
        encoder.encode(task, {}, short, isolated=False)
    assert {0: 1, 3: 0, 4: 1}[lost] not in finished_cells(task.table, task.quarantine, "p", 0)


@pytest.mark.long
def test_child_process_writes_the_same_parts(tmp_path: Path, tiny_bundle: Path, ray_local: None):
    encoder = actor(bundle_factory(tiny_bundle))
    ours, isolated = wave(tmp_path / "a"), wave(tmp_path / "b")
    first = encoder.encode(ours, {}, rows(0, 0, 1), isolated=False)
    second = encoder.encode(isolated, {}, rows(0, 0, 1), isolated=True)
    assert [cell.parts for cell in first.cells] == [cell.parts for cell in second.cells]
