"""One life: the operations of a script on a source, a table and an index, each compared with what has to follow."""

import os
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.plans.encode_plan import Plan
from lsr_prod.encoding.plans.successors import plan_chain, save_plan
from lsr_prod.encoding.tables import open_table
from lsr_prod.encoding.tables.sparse_table import PLAN_PROPERTY
from lsr_prod.errors import ConfigError, LsrError, SourceError
from lsr_prod.operations.table_generations import register_table, table_for_bundle
from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import EncoderCard
from tests.faults import protocol
from tests.faults.lives.deliveries import CHANGES, Deliveries
from tests.faults.lives.expected import STEP, VOCABULARY, ModelStub, check_tables
from tests.faults.lives.handles import shared_handles
from tests.faults.lives.index import LifeIndex, maintain_tables, make_bundles
from tests.faults.lives.requests import REQUESTS, Killed
from tests.faults.lives.script import LifeScript, Operation
from tests.faults.lives.small import small_plans
from tests.faults.oracle import Findings
from tests.faults.protocol import Job, run_attempt

__all__ = ["LifeOutcome", "live"]

_ATTEMPTS = 3  # an attempt may end with "run the job again" after a crash
_MOMENTS = 100  # of an attempt, before one has finished
_MOMENTS_OF_A_BUILD = 80
_LONG = 24.0 * 365  # hours
_MONTH = 30 * 86_400.0


@dataclass(slots=True)
class LifeOutcome:
    """What happened in a life."""

    findings: Findings = field(default_factory=Findings)
    counts: Counter[str] = field(default_factory=Counter)


class _Failed(Exception):  # noqa: N818 (no error: the rest of the life means nothing)
    """The findings say what failed."""


def live(script: LifeScript, folder: Path) -> LifeOutcome:
    """Carry out a script in an empty folder."""
    life = _Life(script, folder)
    with REQUESTS.counted(), small_plans(script.sizes), shared_handles():
        try:
            for operation in script.operations:
                life.perform(operation)
            life.perform(Operation("night", 0, 0, 0))
        except _Failed:
            pass
    return life.outcome


class _Life:
    def __init__(self, script: LifeScript, folder: Path) -> None:
        self.outcome = LifeOutcome()
        self._script, self._folder = script, folder
        self._source = Deliveries(folder / "source", script.overlap)
        self._sources: dict[str, dict[str, bytes]] = {}  # plan -> its source
        self._model = 0
        self._moments = _MOMENTS  # of the last attempt with a commit
        self._bundles = make_bundles(folder)
        self._index = LifeIndex(folder / "index", folder, script.buckets)

    def perform(self, operation: Operation) -> None:
        """Carry out an operation."""
        if operation.name in CHANGES:
            self._source.change(operation.name, operation.a, operation.b, operation.c)
        elif self._source.files:  # a source without a file is refused
            self.outcome.counts[operation.name] += 1
            _OPERATIONS[operation.name](self, operation)

    @property
    def _first(self) -> Store:
        """The table ``encode.table``, next to which other bundles have theirs."""
        return Store(str(self._folder / "table"))

    @property
    def _job(self) -> Job:
        bundle = self._bundles[self._model]
        return Job(
            paths=(str(self._source.folder),),
            table=table_for_bundle(self._first, bundle.digest).uri,
            options={},
            buckets=self._script.buckets,
            on_duplicate=self._script.rule,  # type: ignore[arg-type]
            stored_fields=("title", "text"),
            bundle=bundle.digest,
            vocabulary=EncoderCard.load(self._folder / f"bundle-{self._model}").vocabulary_sha256,
            vocabulary_size=VOCABULARY,
            impact_step=STEP,
            megabytes=None,
        )

    def _attempt(self, *, abandon: bool = False) -> int:
        files = dict(self._source.files)

        def remember(plan: Plan, table: Store) -> None:
            self._sources[plan.digest] = files
            save_plan(plan, table)

        job = self._job
        register_table(self._first, job.stores[0])
        with patch.object(protocol, "save_plan", remember):
            return run_attempt(job, lambda _: nullcontext(), ModelStub(self._model), abandon=abandon)

    @contextmanager
    def _no_crash(self, what: str) -> Iterator[None]:
        """Let errors of the product pass; any other error is a finding."""
        try:
            yield
        except (LsrError, Killed, _Failed):
            raise
        except Exception as error:  # noqa: BLE001 (any error that is not the product's is a finding)
            where = traceback.extract_tb(error.__traceback__)[-1]
            self._fail(f"{what}: {type(error).__name__} at {where.filename.rpartition('/')[2]}:{where.lineno}: {error}")

    def _fail(self, sentence: str) -> NoReturn:
        self.outcome.findings.note("wrong", 1, sentence)
        raise _Failed

    def night(self, operation: Operation) -> None:
        """Encode until the work is done, and compare the table."""
        self.outcome.counts["nights"] += 1
        refused = self._finish("night")
        if refused is not None:
            self.outcome.counts["refused"] += 1
            self._check(self._way_out(refused, operation))
        else:
            self._check("night")

    def _finish(self, what: str, *, abandon: bool = False) -> LsrError | None:
        """Run undisturbed attempts until one succeeds; return a refusal."""
        failures: list[LsrError] = []
        while len(failures) < _ATTEMPTS:
            try:
                REQUESTS.kill_at(None)
                with self._no_crash(what):
                    if self._attempt(abandon=abandon):
                        self._moments = REQUESTS.count
                return None
            except (ConfigError, SourceError) as error:
                return error
            except LsrError as error:
                failures.append(error)
        return self._fail(f"{what}: {_ATTEMPTS} attempts fail: {type(failures[-1]).__name__}: {failures[-1]}")

    def _way_out(self, refused: LsrError, operation: Operation) -> str:
        """Do what the message of a refusal says; returns what was done."""
        if "--abandon" not in str(refused):
            self._fail(f"refusal without a way out: {refused}")
        if operation.a % 3:
            self.outcome.counts["refused.abandon"] += 1
            done = "night that abandons"
            again = self._finish(done, abandon=True)
        else:
            self.outcome.counts["refused.former"] += 1
            done = "night after one with the former source"
            again = self._run_former() or self._finish(done)
        if again is not None:
            self._fail(f"{done} is refused: {again}")
        return done

    def _run_former(self) -> LsrError | None:
        """Finish the newest plan with its own source; returns a refusal."""
        now, what = dict(self._source.files), "night with the former source"
        self._source.place(self._sources[self._newest_plan()])
        refused = self._finish(what)
        if refused is None:
            self._check(what)
        self._source.place(now)
        return refused

    def _newest_plan(self) -> str:
        table = open_table(self._job.stores[0])
        assert table is not None
        return plan_chain(table.store, table.properties[PLAN_PROPERTY], partial(waves_done, table))[-1]

    def _check(self, what: str) -> None:
        findings = self.outcome.findings
        with self._no_crash(f"tables after a {what}"):
            found = check_tables(self._job, self._source.files, self._script.rule, ModelStub(self._model))
            found.sentences = [f"{sentence} (after a {what})" for sentence in found.sentences]
            findings.add(found)
        if not findings.clean:
            raise _Failed

    def _crash(self, operation: Operation) -> None:
        """Kill an attempt at a request."""
        REQUESTS.kill_at(self._moments // 4 + operation.a % self._moments)
        try:
            with self._no_crash("attempt that is killed"):
                self._attempt()
        except Killed:
            self.outcome.counts["killed"] += 1
        except LsrError:
            pass
        finally:
            REQUESTS.kill_at(None)

    def _zombie(self, operation: Operation) -> None:
        """Stop an attempt at a request, let another one work, then continue the first one."""
        REQUESTS.wait_at(1 + operation.a % self._moments)
        failures: list[BaseException] = []

        def older() -> None:
            try:
                with self._no_crash("attempt that was overtaken"):
                    self._attempt()
            except LsrError:
                pass
            except BaseException as error:  # noqa: BLE001 (raised by the thread that waits)
                failures.append(error)

        thread = threading.Thread(target=older)
        thread.start()
        while thread.is_alive() and not REQUESTS.waits.wait(0.001):
            pass
        overtakes = thread.is_alive()
        try:
            if overtakes:
                self.outcome.counts["overtaken"] += 1
                with self._no_crash("attempt that overtakes"):
                    self._attempt()
        except LsrError:
            pass
        finally:
            REQUESTS.proceed()
            thread.join()
            REQUESTS.kill_at(None)
        if failures:
            raise failures[0]

    def _maintain(self, *, retention: float, purge: bool) -> None:
        table = self._job.stores[0]
        if open_table(table) is None:
            return
        with self._must_succeed("maintenance"):
            maintain_tables(table, self._index, retention=retention, purge=purge)

    def _compact(self, _: Operation) -> None:
        self._maintain(retention=_LONG, purge=False)

    def _purge(self, _: Operation) -> None:
        self._maintain(retention=_LONG, purge=True)

    def _vacuum(self, operation: Operation) -> None:
        """Let every file of the tables look a month old, then delete what nothing needs."""
        when = time.time() - _MONTH
        for store in self._job.stores:
            for path in Path(store.uri).rglob("*"):
                if path.is_file():
                    os.utime(path, (when, when))
        self._maintain(retention=1, purge=operation.a % 4 == 0)

    def _switch(self, _: Operation) -> None:
        """Encode with the other bundle from now on, into a table next to the one before."""
        self._model = 1 - self._model

    def _build(self, operation: Operation) -> None:
        """Build and publish an index version; some builds are killed first."""
        table = self._job.stores[0]
        if open_table(table) is None:
            return
        arguments = table, self._model, operation.a, operation.b, operation.c
        if operation.c % 4 == 0:
            REQUESTS.kill_at(1 + operation.b % _MOMENTS_OF_A_BUILD)
            try:
                with self._no_crash("build that is killed"):
                    self._index.build(*arguments)
            except Killed:
                self.outcome.counts["killed.build"] += 1
            finally:
                REQUESTS.kill_at(None)
        with self._must_succeed("build"):
            self.outcome.counts[f"build.{self._index.build(*arguments)}"] += 1
        self._check_index()

    def _take_down(self, operation: Operation) -> None:
        self._change_index(lambda: self._index.take_down(self._index.some_ids(operation.a, operation.b)))

    def _restore(self, operation: Operation) -> None:
        self._change_index(lambda: self._index.restore(self._index.some_ids(operation.a, operation.b)))

    def _roll_back(self, operation: Operation) -> None:
        self._change_index(lambda: self._index.roll_back(operation.a))

    def _collect(self, operation: Operation) -> None:
        self._change_index(lambda: self._index.collect(operation.a, self._first, self._job.stores[0]))

    def _change_index(self, change: Callable[[], None]) -> None:
        if self._index.is_published:
            with self._must_succeed("change of the index"):
                change()
            self._check_index()

    def _check_index(self) -> None:
        with self._must_succeed("search"):
            self._index.check(self.outcome.findings)
        if not self.outcome.findings.clean:
            raise _Failed

    @contextmanager
    def _must_succeed(self, what: str) -> Iterator[None]:
        try:
            with self._no_crash(what):
                yield
        except LsrError as error:
            self._fail(f"{what}: {type(error).__name__}: {error}")


_OPERATIONS: dict[str, Callable[[_Life, Operation], None]] = {
    "night": _Life.night,
    "crash": _Life._crash,
    "zombie": _Life._zombie,
    "compact": _Life._compact,
    "purge": _Life._purge,
    "vacuum": _Life._vacuum,
    "bundle": _Life._switch,
    "index": _Life._build,
    "takedown": _Life._take_down,
    "restore": _Life._restore,
    "rollback": _Life._roll_back,
    "collect": _Life._collect,
}
