"""Nights with maintenance between them: the table stays equal to a full encode, and little remains of old nights."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.config import Deployment, MaintainSettings
from lsr_prod.encoding.tables.sparse_table import table_digest
from lsr_prod.operations.maintenance import maintain
from lsr_prod.operations.status import table_status
from lsr_prod.storage.formats.sparse import SparseBatch
from tests.faults.corpus import fake_vectors
from tests.faults.protocol import Job, run_attempt
from tests.operations.maintenance.test_vacuum import age

pytestmark = pytest.mark.usefixtures("ray_local")


class Encoder:
    """Stand-in for a model: a vector that depends on the text only."""

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        return fake_vectors(texts).top(16)


class Source:
    """A folder of files of JSON lines, each with a bad line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def write(self, name: str, texts: Sequence[str], first: int) -> None:
        lines = [json.dumps({"_id": f"d{first + i}", "text": text}) for i, text in enumerate(texts)]
        (self._folder / f"{name}.jsonl").write_text("\n".join([*lines, f"bad line of {name}", ""]))

    def remove(self, name: str) -> None:
        (self._folder / f"{name}.jsonl").unlink()

    def paths(self) -> tuple[str, ...]:
        return tuple(map(str, sorted(self._folder.iterdir())))


@contextmanager
def phase(_name: str) -> Iterator[None]:
    yield


@contextmanager
def dies_before_commit(name: str) -> Iterator[None]:
    if name == "commit":
        raise InterruptedError
    yield


def night(job: Job, source: Source, **settings: object) -> None:
    """Encode the source as it is now; the driver's steps of an encode job, without Ray and without a model."""
    run_attempt(replace(job, paths=source.paths()), phase, Encoder(), **settings)


def maintained(job: Job) -> dict[str, int]:
    """Maintain the tables as if the last night was a month ago, and return the number of deleted files by kind."""
    table, quarantine = job.stores
    for store in job.stores:
        age(Path(store.uri))
    settings = MaintainSettings(table=table.uri, quarantine=quarantine.uri, target_megabytes=1)
    listed = maintain(Deployment(maintain=settings.model_copy(update={"dry_run": True})))
    done = maintain(Deployment(maintain=settings))
    assert done.kinds == listed.kinds
    parts = [(one.parts_before, one.parts_after) for one in (done.compaction, done.quarantine) if one]
    assert parts == [(one.parts_before, one.parts_after) for one in (listed.compaction, listed.quarantine) if one]
    return dict(done.kinds)


@pytest.mark.long
def test_increment_after_maintenance_equals_a_full_encode(tmp_path: Path):
    source = Source(tmp_path / "source")
    job = Job((), str(tmp_path / "table"), {})
    source.write("a", ["one", "two", "three"], 0)
    source.write("b", ["four", "five"], 10)
    night(job, source)
    source.write("c", ["six", "seven"], 20)
    night(job, source)
    source.write("b", ["four", "changed"], 10)
    night(job, source)
    maintained(job)
    deleted = maintained(job)
    assert deleted["plans"] == 2  # the record of the second plan stays for the third one
    source.remove("a")
    source.write("d", ["eight"], 30)
    night(job, source)
    full = replace(job, table=str(tmp_path / "full"))
    night(full, source)
    assert table_digest(job.table) == table_digest(full.table)
    states = [(plan.kind, plan.state) for plan in table_status(job.stores[0]).plans]
    assert states == [("full", "finished"), ("increment", "finished"), ("increment", "finished")]


@pytest.mark.long
def test_unfinished_night_is_resumed_after_maintenance(tmp_path: Path):
    source = Source(tmp_path / "source")
    job = Job((), str(tmp_path / "table"), {})
    for number, name in enumerate("abc"):
        source.write(name, [f"text {name}", "more"], 10 * number)
        night(job, source)
    source.write("d", ["last", "texts"], 90)
    with pytest.raises(InterruptedError):
        run_attempt(replace(job, paths=source.paths()), dies_before_commit, Encoder())
    begun = table_status(job.stores[0]).plans[-1]
    for _ in range(3):
        maintained(job)
    night(job, source)
    resumed = table_status(job.stores[0]).plans[-1]
    assert (resumed.plan, begun.waves_done, resumed.state) == (begun.plan, 0, "finished")
    full = replace(job, table=str(tmp_path / "full"))
    night(full, source)
    assert table_digest(job.table) == table_digest(full.table)
