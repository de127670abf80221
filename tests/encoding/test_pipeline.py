"""The pipeline of waves, verified by the tables of real jobs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import ray

from lsr_prod.encoding import encode_corpus
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.tables import open_table
from lsr_prod.encoding.tables.sparse_table import PLAN_PROPERTY
from lsr_prod.encoding.waves import BlockRows, WaveReader
from lsr_prod.errors import SourceError
from lsr_prod.storage import Store
from tests.encoding.test_encode import deployment, write_jsonl

pytestmark = [pytest.mark.usefixtures("ray_local"), pytest.mark.long]

FILES = 4
FILLER = "x" * 200_000  # of a field that is not read: four documents of a file are a wave of 1 MB


def write_corpus(folder: Path) -> Path:
    """Write files of one wave each; each repeats an id of every earlier file with another text."""
    for number in range(FILES):
        again = [{"_id": f"d{earlier}-0", "text": f"again in {number}", "filler": ""} for earlier in range(number)]
        new = [{"_id": f"d{number}-{i}", "text": f"the fox {number} {i}", "filler": FILLER} for i in range(4)]
        write_jsonl(folder / f"{number}.jsonl", [*new, *again])
    return folder


def test_waves_of_a_pipeline_give_the_table_of_a_single_wave(tmp_path: Path, tiny_bundle: Path):
    corpus = write_corpus(tmp_path / "corpus")
    settings = {"max_bad_fraction": 1.0}
    several = encode_corpus(deployment(tiny_bundle, tmp_path / "a", corpus, wave_megabytes=1, **settings))
    one = encode_corpus(deployment(tiny_bundle, tmp_path / "b", corpus, wave_megabytes=256, **settings))
    assert (several.waves, one.waves) == (FILES, 1)
    assert several.table_digest == one.table_digest
    assert several.quarantined_by_reason == one.quarantined_by_reason == {"duplicate_id": FILES * (FILES - 1) // 2}


def test_waves_before_a_wave_that_fails_are_committed(tmp_path: Path, tiny_bundle: Path):
    corpus = write_corpus(tmp_path / "corpus")
    for number in range(1, FILES - 1):  # the last file alone repeats ids
        path = corpus / f"{number}.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    settings = deployment(tiny_bundle, tmp_path / "table", corpus, wave_megabytes=1, on_duplicate="error", actors=1)
    with pytest.raises(SourceError, match="have the id of another row"):
        encode_corpus(settings)
    table = open_table(Store(str(tmp_path / "table")))
    assert table is not None
    assert waves_done(table, table.properties[PLAN_PROPERTY]) == FILES - 1


class Owner:
    """Owns an object, which is lost with it, as rows are lost with their node."""

    def put(self) -> list[Any]:
        return [ray.put("rows")]


def lost_object() -> Any:
    owner: Any = ray.remote(Owner).options(num_cpus=0).remote()
    (reference,) = ray.get(owner.put.remote())
    ray.kill(owner)
    return reference


def test_job_shares_its_node_with_an_actor_of_another_job(tmp_path: Path, tiny_bundle: Path, ray_local: None):
    other: Any = ray.remote(Owner).options(num_cpus=1).remote()  # one of the two cores
    ray.get(other.__ray_ready__.remote())
    corpus = write_corpus(tmp_path / "corpus")
    summary = encode_corpus(deployment(tiny_bundle, tmp_path / "t", corpus, wave_megabytes=1, max_bad_fraction=1.0))
    ray.kill(other)
    assert (summary.documents, summary.actors) == (4 * FILES, 1)


def test_wave_whose_rows_are_lost_is_read_again(tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch):
    reads: list[int] = []
    read = WaveReader.read

    def read_and_lose(reader: WaveReader, wave: int, blocks: Mapping[int, Sequence[int]]) -> BlockRows:
        rows = read(reader, wave, blocks)
        reads.append(wave)
        if wave == 1 and reads.count(1) == 1:
            rows.tables.update({block: (lost_object(),) for block in rows.tables})
        return rows

    monkeypatch.setattr(WaveReader, "read", read_and_lose)
    corpus = write_corpus(tmp_path / "corpus")
    sizes = {"wave_megabytes": 1, "max_bad_fraction": 1.0, "actors": 1}
    summary = encode_corpus(deployment(tiny_bundle, tmp_path / "t", corpus, **sizes))
    assert reads.count(1) == 2
    assert (summary.documents, summary.quarantined) == (4 * FILES, FILES * (FILES - 1) // 2)
