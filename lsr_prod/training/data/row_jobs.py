"""Job that makes training rows: survey the slices, make the missing parts on actors, verify counts, seal the output.

The output folder is reserved for one plan, and complete when its manifest exists. The jobs are ``negatives.job``
(mining) and ``scoring.job``.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lsr_prod.cluster import ray_session
from lsr_prod.cluster.workers import Workers, require_shared_folders
from lsr_prod.config import Deployment, MineSettings, ScoreSettings
from lsr_prod.corpus import pinned_file, read
from lsr_prod.errors import ConfigError, IncompleteWaveError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, in_threads, store_digest
from lsr_prod.storage.formats.digests import canonical_json, digest_json, parsing
from lsr_prod.training.data import row_parts, training_rows

log = get_log(__name__)
_PROGRESS_S = 10.0
# Settings that decide where and how fast a job runs, and do not change any row.
_ELSEWHERE = ("output", "actors", "threads_per_actor", "slice_kilobytes")
_ELSEWHERE_OF_DATA = {"paths", "format", "version", "max_bad_fraction"}
Opener = Callable[[], Any]
PLAN, MANIFEST = "_plan.json", "_manifest.json"


@dataclass(frozen=True, slots=True)
class Survey:
    """Counts of a slice before anything is written."""

    rows: int  # number of rows
    bad: Counter[str]  # number of bad rows by reason


@dataclass(frozen=True, slots=True)
class RowOutput:
    """Output folder of one plan."""

    store: Store  # the folder
    digest: str  # sha256 of the plan
    field: str  # the setting that names the folder, for messages
    inputs: str  # what else than settings and data decides the rows, for messages

    def manifest(self) -> Mapping[str, Any] | None:
        """Check that the folder is empty or belongs to the plan, and return the manifest if the plan is complete."""
        found = self.store.get(PLAN)
        if found is None:
            if names := self.store.names():
                raise ConfigError(
                    self.field, f"{self.store.uri} holds {names[0]}", "give a folder that is empty or absent"
                )
            return None
        if self._read(PLAN, found).get("digest") != self.digest:
            problem = f"{self.store.uri} holds rows of other settings, data or {self.inputs}"
            raise ConfigError(self.field, problem, "give another folder, or delete this one")
        done = self.store.get(MANIFEST)
        return None if done is None else self._read(MANIFEST, done)

    def reserve(self, plan: Mapping[str, Any]) -> None:
        """Reserve the folder."""
        self.store.put_new(PLAN, canonical_json({"digest": self.digest, "plan": plan}))
        self.manifest()

    def _read(self, name: str, data: bytes) -> dict[str, Any]:
        with parsing(f"{self.store.uri}/{name} is damaged", "delete the folder, then run again"):
            return dict(json.loads(data).items())


@dataclass(frozen=True, slots=True)
class RowJobKind:
    """Functions and names of a job."""

    section: str  # section of the settings
    inputs: str  # what decides the rows besides settings and data, for messages
    doing: str  # what an actor does, for messages
    format: row_parts.PartFormat  # format of the parts
    unit: str  # what an actor processes, for rates
    work: Callable[[row_parts.PartReport], int]  # returns the number of units of a part
    # counts the rows of a slice, given the slice, the settings and the options of the stores
    survey: Callable[..., Survey]
    # makes a part, given what its actor has opened, the output folder, the digest of the plan, the number of the
    # slice, and the slice
    make: Callable[..., row_parts.PartReport]
    # returns the further counts of the summary from those of the job
    measures: Callable[[Mapping[str, Any]], dict[str, Any]]
    gpu_setting: str  # setting that gives each actor a GPU
    # raises an error if the output is useless, given the settings, the counts of the finished parts and the rows of all
    check: Callable[[Any, row_parts.PartReport, int], None] | None = None
    tolerated: frozenset[str] = frozenset()  # reasons of bad rows that do not count for ``max_bad_fraction``


@dataclass(frozen=True, slots=True)
class RowJob:
    """Validated plan of a job, fixed before it starts: equal plans make equal parts."""

    kind: RowJobKind  # functions and names
    settings: MineSettings | ScoreSettings  # the section of the job
    output: Store  # the output folder
    slices: Sequence[pinned_file.Slice]  # slices of the input; the position of a slice is the number of its part
    plan: Mapping[str, Any]  # everything that decides the rows; its digest identifies the plan
    # returns a function that opens on an actor what it needs, given the surveys; nothing is written yet
    opened: Callable[[Sequence[Any], Deployment], Opener]
    pins: Mapping[str, Any]  # pinned inputs for the manifest
    facts: Mapping[str, Any]  # what the summary says about the inputs
    use_gpu: bool = False  # each actor needs a GPU
    others: Sequence[pinned_file.Slice] = ()  # slices of further files that are read

    @property
    def digest(self) -> str:
        """sha256 of the plan."""
        return digest_json(self.plan)

    @property
    def reserved(self) -> RowOutput:
        """The output folder as this plan reserves it."""
        return RowOutput(self.output, self.digest, f"{self.kind.section}.output", self.kind.inputs)

    def run(self, deployment: Deployment) -> Mapping[str, Any]:
        """Make the missing parts, complete the output and return a flat summary.

        The next run resumes an interrupted one; running a finished job again only returns its summary.
        """
        if done := self.reserved.manifest():
            return self._summary(done["counts"], reused=len(self.slices))
        section = self.kind.section
        with ray_session(deployment.ray):
            actors = self.actors()
            files = dict.fromkeys(piece.file for piece in (*self.slices, *self.others))
            read.require_source_on_nodes(files, field=f"{section}.data.paths")
            require_shared_folders({f"{section}.output": self.output.uri})
            surveys = self._survey(deployment)
            opened = self.opened(surveys, deployment)
            self.reserved.reserve(self.plan)
            return self._make(surveys, opened, actors)

    def actors(self) -> int:
        """Return the number of actors that the cluster has room for, at most ``actors`` of the settings."""
        from lsr_prod.cluster.tasks import Needs, room  # imports Ray

        section, threads = self.kind.section, self.settings.threads_per_actor
        if not room(Needs(cpus=threads)):
            raise ConfigError(f"{section}.threads_per_actor", f"no machine has {threads} cores", "give a lower number")
        fit = room(Needs(cpus=threads, gpus=int(self.use_gpu)))
        if not fit:
            raise ConfigError(self.kind.gpu_setting, "the cluster has no GPU for an actor", "set it to false")
        return min(fit, self.settings.actors or fit)

    def _survey(self, deployment: Deployment) -> list[Any]:
        """Survey every slice, to reject bad data before anything is opened or written."""
        items = [(piece, self.settings, self.output.options) for piece in self.slices]
        with Workers(deployment.ray) as workers:
            found = dict(workers.run(self.kind.survey, items, size=sum(piece.size for piece in self.slices)))
        surveys = [found[number] for number in range(len(items))]
        rows, bad = sum(survey.rows for survey in surveys), sum((survey.bad for survey in surveys), Counter[str]())
        if not rows:
            raise ConfigError(f"{self.kind.section}.data.paths", "the files contain no rows", "give files with rows")
        log.info("surveyed", extra={"fields": {"rows": rows, "bad": dict(bad), "slices": len(surveys)}})
        self._check_bad_rows(rows, bad)
        return surveys

    def _check(self, report: row_parts.PartReport, rows: int) -> None:
        self._check_bad_rows(rows, report.quarantined)
        if self.kind.check is not None:
            self.kind.check(self.settings, report, rows)

    def _check_bad_rows(self, rows: int, bad: Counter[str]) -> None:
        counted = {reason: number for reason, number in bad.most_common() if reason not in self.kind.tolerated}
        training_rows.check_bad_rows(rows, counted, self.settings.data, field=f"{self.kind.section}.data")

    def _make(self, surveys: Sequence[Survey], opened: Opener, actors: int) -> Mapping[str, Any]:
        from lsr_prod.cluster.tasks import Needs, run_on_actors

        kind, rows, digest = self.kind, [survey.rows for survey in surveys], self.digest
        reports = self._finished()
        reused, began, work = len(reports), time.monotonic(), 0
        todo = [number for number in range(len(rows)) if number not in reports]
        actors = min(actors, len(todo))
        if todo:
            log.info(kind.doing, extra={"fields": {"slices": len(todo), "reused": reused, "actors": actors}})
            calls = [(self.output, digest, number, self.slices[number]) for number in todo]
            needs = Needs(cpus=self.settings.threads_per_actor, gpus=int(self.use_gpu))
            before = so_far = sum(reports.values(), row_parts.PartReport())
            logged = began
            for call, report in run_on_actors(opened, kind.make, calls, actors=actors, task=kind.doing, needs=needs):
                reports[todo[call]] = report
                work += kind.work(report)
                so_far += report
                now = time.monotonic()
                if now - logged >= _PROGRESS_S or so_far.rows == sum(rows):
                    logged, rate = now, round(work / max(now - began, 1e-9), 1)
                    done = {"rows": so_far.rows - before.rows, "of": sum(rows) - before.rows}
                    made = {"made": so_far.made - before.made, f"{kind.unit}_per_s": rate}
                    log.info("progress", extra={"fields": done | made})
                self._check(so_far, sum(rows))  # the job ends early if the rows or the model are bad
        seconds = time.monotonic() - began
        self._check_lost_rows(rows, reports)
        total = sum(reports.values(), row_parts.PartReport())
        self._check(total, total.rows)
        counts = kind.format.to_json(total, kind.format.rules)
        self._seal({**self.pins, "plan": digest, "counts": counts}, [reports[i].made for i in range(len(rows))])
        return self._summary(counts, reused=reused, seconds=seconds, actors=actors, work=work)

    def _finished(self) -> dict[int, row_parts.PartReport]:
        """Read the reports of the slices that have a part."""
        existing = set(self.output.names())
        finished = [number for number in range(len(self.slices)) if row_parts.part_name(number) in existing]
        return dict(zip(finished, in_threads(partial(self.kind.format.read, self.output), finished), strict=True))

    def _check_lost_rows(self, rows: Sequence[int], reports: Mapping[int, row_parts.PartReport]) -> None:
        """Compare the rows of every part and its quarantine with the rows that its slice has."""
        for number, expected in enumerate(rows):
            report = reports.get(number)
            if report is None or report.rows != expected or expected != report.made + report.quarantined.total():
                found = "no report" if report is None else self.kind.format.to_json(report)
                raise IncompleteWaveError(
                    f"slice {number} has {expected} rows, but its part reports {found}; delete "
                    f"{self.output.uri}/{row_parts.part_name(number)}, then run the job again"
                )

    def _seal(self, manifest: Mapping[str, Any], rows: Sequence[int]) -> None:
        """Write the manifest, which completes the output."""
        names = [row_parts.part_name(number) for number in range(len(rows))]
        digests = in_threads(partial(store_digest, self.output), names)
        files = [
            {"path": name, "sha256": digest, "rows": count}
            for name, digest, count in zip(names, digests, rows, strict=True)
        ]
        self.output.put_new(MANIFEST, canonical_json({**manifest, "files": files}))

    def _summary(
        self, counts: Mapping[str, Any], *, reused: int, seconds: float = 0.0, actors: int = 0, work: int = 0
    ) -> Mapping[str, Any]:
        kind = self.kind
        return {
            "rows": counts["rows"],
            kind.format.made: counts[kind.format.made],
            **kind.measures(counts),
            "quarantined": sum(counts["quarantined"].values()),
            **{f"quarantined.{reason}": number for reason, number in counts["quarantined"].items()},
            **{f"dropped.{rule}": number for rule, number in counts.get("dropped", {}).items()},
            "parts": len(self.slices),
            "parts_reused": reused,
            "actors": actors,
            "threads_per_actor": self.settings.threads_per_actor,
            "seconds": seconds,
            f"{kind.unit}_per_s": work / seconds if seconds else 0.0,
            **self.facts,
            "plan": self.digest,
            "output": self.output.uri,
            "quarantine": f"{self.output.uri.rstrip('/')}/{row_parts.QUARANTINE}",
        }


def decisive_settings(settings: MineSettings | ScoreSettings, left_out: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide the rows; ``left_out``: further fields to exclude, as pydantic takes them."""
    exclude: Any = {**dict.fromkeys(_ELSEWHERE, True), "data": _ELSEWHERE_OF_DATA, **left_out}
    return settings.model_dump(mode="json", exclude=exclude)


def identities(slices: Sequence[pinned_file.Slice]) -> list[list[Any]]:
    """Return pinned file and range of every slice, for a plan."""
    return [[piece.file.identity(), piece.start, piece.stop] for piece in slices]
