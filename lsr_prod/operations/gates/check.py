"""Run all gates on a version, keep their report in the index, and refuse or approve the version."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from lsr_prod.config import Deployment
from lsr_prod.errors import ArtifactError, ConfigError, PublicationError
from lsr_prod.evaluation import collection, measures
from lsr_prod.indexing.publish import Approval, Candidate
from lsr_prod.logs import get_log
from lsr_prod.operations.gates.gates import GATES
from lsr_prod.operations.gates.report import GateReport, GateResult, Versions
from lsr_prod.storage import Store, as_store
from lsr_prod.storage.formats import digests, index_format

log = get_log(__name__)

_FILES = ("golden_queries", "canary_queries", "judged_queries", "judged_qrels")


class Gatekeeper:
    """Runs the gates of a deployment for a publisher.

    Args:
        deployment: sections ``gates``, ``index``, ``encode`` and ``storage``.
        force: names of gates that may not refuse.
        reason: why, for people.

    Attributes:
        reports: of the versions that were checked.
        files: the pinned source that the table was encoded from; None: this job reads no source.

    Raises:
        ConfigError: a gate is unknown, there is no reason, or a gate's measure or file is missing.
    """

    def __init__(self, deployment: Deployment, force: Sequence[str] = (), reason: str = "") -> None:
        check_gates(deployment, force, reason)
        self._deployment, self._force, self._reason = deployment, frozenset(force), reason
        self.reports: list[GateReport] = []
        self.files: pa.Table | None = None

    def __call__(self, candidate: Candidate) -> Approval:
        """Check a version.

        Raises:
            PublicationError: a gate refuses it.
            SourceError: queries of a gate cannot be read.
        """
        versions = Versions(candidate, self._deployment, self.files)
        results = tuple(self._overruled(gate(versions)) for gate in GATES.values())
        forced = tuple(
            index_format.Forced(result.gate, result.sentence, self._reason)
            for result in results
            if result.verdict == "forced"
        )
        report = GateReport(
            candidate.version.sha,
            "" if candidate.current is None else candidate.current.sha,
            datetime.now(UTC).isoformat(timespec="seconds"),
            results,
            self._reason if forced else "",
        )
        self.reports.append(report)
        name = _save(as_store(candidate.index), report)
        for result in results:
            fields = {"gate": result.gate, "verdict": result.verdict, "sentence": result.sentence}
            log.log(logging.WARNING if result.verdict == "refused" else logging.INFO, "gate", extra={"fields": fields})
        if report.refused:
            raise _refusal(as_store(candidate.index), report, name)
        return Approval(forced, name)

    def _overruled(self, result: GateResult) -> GateResult:
        if result.verdict == "refused" and result.gate in self._force:
            return replace(result, verdict="forced")
        return result


def check_gates(deployment: Deployment, force: Sequence[str], reason: str) -> None:
    """Check the options ``--force`` and ``--reason``, and the measure and the files of the gates.

    Raises:
        ConfigError: a gate or the measure is unknown, or an option or a file is missing.
    """
    limits = deployment.gates
    files = {name: getattr(limits, name) for name in _FILES}
    collection.require_files(
        {f"gates.{name}": place for name, place in files.items() if place}, deployment.storage.options
    )
    measures.parse_measures("gates.measure", [limits.measure])
    for name in force:
        if name not in GATES:
            raise ConfigError("--force", f"there is no gate {name!r}", f"available: {', '.join(GATES)}")
    if force and not reason.strip():
        raise ConfigError("--reason", "a forced gate needs a reason", "say why; it is recorded in the publication")
    if reason and not force:
        raise ConfigError("--reason", "no gate is forced", "give --force GATE, or leave it out")


def read_report(index: Store, name: str) -> GateReport:
    """Read a report of the gates.

    Args:
        index: the index.
        name: its sha256, as a publication records it.

    Raises:
        ArtifactError: it is missing or damaged.
    """
    data = index.get(f"reports/{name}.json")
    if data is None or hashlib.sha256(data).hexdigest() != name:
        raise ArtifactError(f"{index.uri}/reports/{name}.json is missing or damaged; publish a version again")
    value: Mapping[str, object] = json.loads(data)
    return GateReport.from_json(dict(value))


def _save(index: Store, report: GateReport) -> str:
    data = digests.record_bytes(report.to_json())
    name = hashlib.sha256(data).hexdigest()
    index.put_new(f"reports/{name}.json", data)
    return name


def _refusal(index: Store, report: GateReport, name: str) -> PublicationError:
    found = "; ".join(f"{result.gate}: {result.sentence}" for result in report.refused)
    names = " ".join(f"--force {result.gate}" for result in report.refused)
    return PublicationError(
        f"version {report.version[:12]} is refused by {len(report.refused)} of {len(report.results)} gates ({found}); "
        f"it is kept, its report is {index.uri}/reports/{name}.json; fix the table, change the limit, or publish it "
        f"with {names} --reason TEXT"
    )
