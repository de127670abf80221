"""The impact scale of a table whose first nights have few documents; everything but Ray and the model is real."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import Reader
from lsr_prod.encoding import scale as scale_module
from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import Epoch, take_epoch
from lsr_prod.encoding.commit.markers import MARKERS_FOLDER
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs
from lsr_prod.encoding.plans.increment import prepare_plan
from lsr_prod.encoding.plans.successors import link_successor, save_plan
from lsr_prod.encoding.results import WaveResult
from lsr_prod.encoding.scale import SCALE_PROPERTY, probe_scale, settle_scale, with_scale
from lsr_prod.encoding.tables import open_table
from lsr_prod.encoding.tables.impact_scale import HEADROOM, ImpactScale
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine
from lsr_prod.encoding.tables.sparse_table import PLAN_PROPERTY, create_sparse_table
from lsr_prod.errors import FencedError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.table_format import TableProperties
from tests.encoding.made_tables import newest, read
from tests.encoding.tables.deletions import delete_ids
from tests.faults.protocol import Job, _encode_wave, _Rows, _wave_task

WANTED = TableProperties("b" * 64, "v" * 64, 0.0, 8, 16, 2, (), vocabulary_size=99)


class Lengths:
    """Encodes a text as a term with its length as weight, and a second term with the weight 1.5."""

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        weights = [weight for text in texts for weight in (len(text), 1.5)]
        return SparseBatch(np.arange(len(texts) + 1) * 2, np.int32([5, 7] * len(texts)), np.float32(weights))


@dataclass
class Nights:
    """Nights of an encode job with probes of eight documents."""

    folder: Path
    clipped: int = 0
    probes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "corpus").mkdir(parents=True)
        self.table, self.quarantine = Store(str(self.folder / "table")), Store(str(self.folder / "table_quarantine"))
        self.source = SourceSettings(paths=[str(self.folder / "corpus")])
        self.encode = EncodeSettings(bundle="b", table=self.table.uri, buckets=2, probe_documents=8)

    def write(self, name: str, lengths: Sequence[int]) -> None:
        rows = [{"_id": f"{name}{i}", "text": "x" * length} for i, length in enumerate(lengths)]
        (self.folder / "corpus" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def begin(self) -> tuple[Plan, Committer]:
        """Take the steps of the driver before the scale: plan, table, epoch."""
        found = open_table(self.table)
        plan = prepare_plan(
            resolve_source(self.source, {}),
            PlanInputs(self.source, self.encode, WANTED.bundle_digest, {}),
            table=self.table,
            root=None if found is None else found.properties[PLAN_PROPERTY],
            waves_done=lambda digest: 0 if found is None else waves_done(found, digest),
        )
        save_plan(plan, self.table)
        if plan.base is not None:
            link_successor(self.table, plan, lambda digest: waves_done(newest(self.table), digest))
        committer = Committer(take_epoch(self.table, plan.digest, ()), self.table, self.quarantine)
        if found is None:
            create_sparse_table(self.table, with_scale(WANTED, self.probe(plan)(0.0)), plan.digest)
        create_quarantine(self.quarantine)
        return plan, committer

    def probe(self, plan: Plan) -> Callable[[float], ImpactScale]:
        def measure(floor: float) -> ImpactScale:
            reader = Reader(self.source, plan.cells, {})
            scale = probe_scale(reader, plan, Lengths(), self.encode, floor)
            self.probes.append(scale.documents)
            return scale

        return measure

    def run(self, probe: Callable[[float], ImpactScale] | None = None) -> TableProperties:
        """Run a night to its end; returns the properties of the table."""
        plan, committer = self.begin()
        committer.fence()
        properties = settle_scale(committer, plan, self.encode, probe or self.probe(plan))
        job = Job((), self.table.uri, {}, buckets=2)
        rows, results = _Rows(plan, self.source), {}
        for wave in range(waves_done(newest(self.table), plan.digest), plan.waves):
            task = _wave_task(job, plan, properties, wave)
            result: WaveResult = _encode_wave(task, plan, rows, Lengths(), results)
            committer.commit(result)
            self.clipped += result.counts.clipped
        assert properties == self.properties
        return properties

    @property
    def properties(self) -> TableProperties:
        return newest(self.table).sparse_properties

    def lengths(self) -> dict[str, float]:
        """Return the weight of the first term of each document, as the table has it."""
        step = self.properties.impact_step
        rows = read(self.table)
        assert all(len(row["terms"]) == len(row["impacts"]) == 2 for row in rows)
        assert len({row["doc_id"] for row in rows}) == len(rows)
        return {row["doc_id"]: row["impacts"][row["terms"].index(5)] * step for row in rows}


def make(folder: Path, *nights: dict[str, Sequence[int]]) -> Nights:
    life = Nights(folder)
    for night in nights:
        for name, lengths in night.items():
            life.write(name, lengths)
        life.run()
    return life


MANY = list(range(300, 100, -10))  # a probe of eight has the heaviest


@pytest.mark.parametrize("first", ["", "no json\n"])
def test_empty_first_night_leaves_the_scale_to_the_first_documents(tmp_path: Path, first: str):
    life = Nights(tmp_path / "nights")
    (life.folder / "corpus" / "a.jsonl").write_text(first)
    assert life.run().probe_documents == 0
    life.write("b", MANY)
    found = life.run()
    at_once = make(tmp_path / "once", {"b": MANY})
    assert found == at_once.properties
    assert life.lengths() == at_once.lengths()
    assert life.clipped == at_once.clipped == 0
    assert found.probe_documents == 8


def test_few_first_documents_are_adapted_to_the_scale_of_more(tmp_path: Path):
    life = make(tmp_path, {"a": [2, 3, 7]})
    before = life.properties
    assert (before.probe_documents, newest(life.table).properties.get(SCALE_PROPERTY)) == (3, None)
    assert life.lengths()["a2"] == pytest.approx(7, abs=before.impact_step / 2)
    life.write("b", MANY[:8])
    after = life.run()
    assert after.impact_step * 255 >= MANY[0] * HEADROOM
    assert (after.probe_documents, after.impact_clipped) == (11, 0)
    bound = (before.impact_step + after.impact_step) / 2
    wanted = {"a0": 2, "a1": 3, "a2": 7} | {f"b{i}": length for i, length in enumerate(MANY[:8])}
    assert life.lengths() == pytest.approx(wanted, abs=bound)
    old = open_table(life.table, 1)
    assert old is not None
    assert old.sparse_properties == before  # readers of an old version scale its impacts


def test_lighter_documents_keep_the_step_and_write_no_part_again(tmp_path: Path):
    life = make(tmp_path, {"a": [900, 3, 7]})
    before, parts = life.properties, {file.path for file in newest(life.table).files()}
    life.write("b", [20] * 3)
    after = life.run()
    assert (after.impact_step, after.probe_documents) == (before.impact_step, 6)
    assert parts <= {file.path for file in newest(life.table).files()}
    assert life.lengths()["a0"] == pytest.approx(900, abs=before.impact_step)


def test_scale_of_enough_documents_is_never_chosen_again(tmp_path: Path):
    life = make(tmp_path, {"a": [5, 6, 7]}, {"b": [8] * 5}, {"c": [900]})
    assert (life.probes, life.clipped) == ([3, 5], 1)
    few = make(tmp_path / "few", {"a": [5] * 9})
    (few.folder / "corpus" / "a.jsonl").unlink()
    few.write("b", [900])
    few.run()
    assert (few.probes, few.clipped) == ([8], 1)


def test_table_of_many_documents_keeps_a_scale_of_few(tmp_path: Path):
    life = make(tmp_path, {"a": [5] * 9})
    few = replace(life.properties, probe_documents=0).to_delta()  # after an empty first night
    newest(life.table).commit([], [], app="q", version=0, epoch=1, properties=few)
    life.write("b", [900])
    life.run()
    assert (life.probes, life.clipped) == ([8], 1)


def test_configured_step_is_never_replaced(tmp_path: Path):
    life = Nights(tmp_path)
    life.encode = life.encode.model_copy(update={"impact_step": 0.25})
    life.write("a", [])
    life.run()
    life.write("b", MANY)
    step = life.properties.impact_step
    life.run()
    assert (life.properties.impact_step, len(life.probes)) == (step, 1)


def test_attempt_after_a_crash_keeps_the_scale_that_its_plan_has_chosen(tmp_path: Path):
    life = make(tmp_path, {"a": [2, 3, 7]})
    life.write("b", MANY[:3])
    plan, committer = life.begin()
    committer.fence()
    chosen = settle_scale(committer, plan, life.encode, life.probe(plan))  # the attempt dies here
    assert life.lengths().keys() == {"a0", "a1", "a2"}

    def never(floor: float) -> ImpactScale:
        raise AssertionError("measured again")

    assert life.run(never) == chosen
    assert len(life.lengths()) == 6
    assert (life.clipped, chosen.probe_documents) == (0, 6)


@pytest.mark.parametrize("at", [0, 1])
def test_crash_before_the_commit_of_the_scale_changes_nothing(tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch):
    life = make(tmp_path, {"a": [2, 3, 7, 5, 4, 6, 1]})
    before, version = life.lengths(), newest(life.table).version
    life.write("b", MANY)
    begun = []

    def die(*given: object) -> object:
        begun.append(given)  # parts are written by several threads
        if len(begun) > at:
            raise KeyboardInterrupt
        return write(*given)

    write = scale_module.write_part
    monkeypatch.setattr(scale_module, "write_part", die)
    with pytest.raises(KeyboardInterrupt):
        life.run()
    monkeypatch.undo()
    assert life.lengths() == before
    assert newest(life.table).version == version + 1  # the fence
    life.run()
    assert (len(life.lengths()), life.clipped) == (7 + len(MANY), 0)


def test_stalled_attempt_takes_the_scale_of_the_newer_one(tmp_path: Path):
    life = make(tmp_path, {"a": [2, 3, 7]})
    life.write("b", MANY)
    plan, older = life.begin()
    older.fence()
    newer: list[TableProperties] = []

    class Stalling(Epoch):
        """The older attempt stalls between its epoch check and its commit."""

        def check(self) -> None:
            Epoch.check(self)
            if not newer:
                newer.append(life.run())

    stalled = replace(older, epoch=Stalling(older.epoch.store, older.epoch.plan, older.epoch.number))
    found = settle_scale(stalled, plan, life.encode, lambda _: ImpactScale(9.0, 0.0, 0.0, 0.0, 8))
    assert [found] == newer
    assert (len(life.lengths()), life.clipped) == (23, 0)
    with pytest.raises(FencedError):
        Epoch.check(older.epoch)


def test_concurrent_attempts_choose_one_scale(tmp_path: Path):
    life = make(tmp_path, {"a": [2, 3, 7]})
    life.write("b", MANY)
    begun = [life.begin() for _ in range(4)]
    begun[-1][1].fence()

    def settle(number: int) -> float | None:
        plan, committer = begun[number]
        with suppress(FencedError):
            scale = ImpactScale(2.0 + number, 0.0, 0.0, 0.0, 8)
            return settle_scale(committer, plan, life.encode, lambda _: scale).impact_step
        return None

    with ThreadPoolExecutor(4) as pool:
        steps = set(pool.map(settle, range(4))) - {None}
    assert steps == {5.0}
    assert life.properties.impact_step == 5.0
    assert life.lengths().keys() == {"a0", "a1", "a2"}


def test_deleted_rows_are_left_out_of_adapted_parts(tmp_path: Path):
    life = make(tmp_path, {"a": [2, 3, 7, 6, 5]})
    delete_ids(life.table, ["a0", "a3"])
    life.write("b", MANY)
    life.run()
    assert life.lengths().keys() == {"a1", "a2", "a4", *(f"b{i}" for i in range(len(MANY)))}
    assert all(file.deleted is None for file in newest(life.table).files())


def test_plan_with_a_committed_wave_of_an_earlier_release_keeps_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    life = make(tmp_path, {"a": [2, 3, 7]})
    before = life.properties
    life.write("b", MANY[:3])
    monkeypatch.setattr("tests.encoding.test_scale.settle_scale", lambda *_: before)
    life.run()
    monkeypatch.undo()
    life.table.delete_all(life.table.names(MARKERS_FOLDER))
    plan, committer = life.begin()
    assert settle_scale(committer, plan, life.encode, lambda _: ImpactScale(9.0, 0.0, 0.0, 0.0, 8)) == before


def test_plan_without_readable_documents_keeps_the_scale(tmp_path: Path):
    life = make(tmp_path, {"a": [2, 3, 7]})
    before = life.properties
    (life.folder / "corpus" / "b.jsonl").write_text("no json\n")
    assert life.run() == before
    (life.folder / "corpus" / "b.jsonl").unlink()
    assert life.run() == before  # a plan that only removes files measures nothing
    assert life.probes == [3, 0]


@pytest.mark.long
def test_scale_survives_checkpoints_of_the_log(tmp_path: Path):
    life = make(tmp_path, {"a": [2, 3, 7]}, {"b": MANY})
    found = life.properties
    for number in range(8):
        life.write("c", [number + 1])
        life.run()
    assert life.properties == found
    assert len(life.lengths()) == 24
