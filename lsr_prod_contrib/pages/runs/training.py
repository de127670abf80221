"""Runs of a training chain: its stages, and their reports step by step."""

from collections.abc import Mapping
from typing import Any

from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.storage import Store
from lsr_prod.training.lineage import StageRecord, load_record
from lsr_prod.training.loop.checkpoint import REPORTS_FILE
from lsr_prod.training.observers.reports import parse_log

_STAGES, _RUNS = "stages", "runs"


def describe_training(work: Store, model: str | None = None) -> dict[str, Any]:
    """Return the stages that led to a model, oldest first, with their figures and reports.

    Returns:
        ``work``, ``model`` and ``stages``: per stage ``stage`` (digest), ``kind`` (None: unfinished), ``parent``,
        ``model``, ``figures`` (those of the table of the job) and ``reports``: ``step``, ``time`` (seconds since 1970)
        and ``values``.
    """
    names = {entry.name: entry.modified for entry in work.entries(_STAGES) if entry.name.endswith(".json")}
    records = {name: record for name in names if (record := load_record(work, _digest(name))) is not None}
    open_run = _newest_open_run(work, {_digest(name) for name in names}) if model is None else None
    if not records and open_run is None:
        raise ArtifactError(f"{work.uri} has no stages; give the folder or URI of train.work")
    stages = []
    if records:
        last = _find(work, records, model) if model else max(records, key=lambda name: (names[name], name))
        stages = [_stage(work, name, records[name]) for name in _chain(records, last)]
    if open_run is not None and (not names or open_run[1] > max(names.values())):
        stages.append(
            {"stage": open_run[0], "kind": None, "parent": None, "model": None, "figures": {}}
            | {"reports": _reports(work, open_run[0])}
        )
    return {"work": work.uri, "model": stages[-1]["model"], "stages": stages}


def _digest(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")


def _find(work: Store, records: Mapping[str, StageRecord], model: str) -> str:
    found = [name for name, record in records.items() if len(model) >= 8 and record.model.startswith(model)]
    if len({records[name].model for name in found}) != 1:
        raise ConfigError(
            "--model",
            f"{'more than one stage' if found else 'no stage'} of {work.uri} made a model {model[:64]}",
            "give 8 or more digits of the digest of a model",
        )
    return found[0]


def _chain(records: Mapping[str, StageRecord], last: str) -> list[str]:
    """Return the stages up to the last one; the parent of each is the model of the one before."""
    by_model = {record.model: name for name, record in records.items()}
    chain = [last]
    while (before := by_model.get(records[chain[0]].parent)) is not None and before not in chain:
        chain.insert(0, before)
    return chain


def _stage(work: Store, name: str, record: StageRecord) -> dict[str, Any]:
    return {
        "stage": _digest(name),
        "kind": str(record.training.get("stage", "")),
        "parent": record.parent,
        "model": record.model,
        "figures": {key: value for key, value in record.summary.items() if isinstance(value, int | float | str)},
        "reports": _reports(work, _digest(name)),
    }


def _newest_open_run(work: Store, finished: set[str]) -> tuple[str, float] | None:
    """Return the stage without a record that reported last, and when; None: there is none."""
    times: dict[str, float] = {}
    for entry in work.entries(_RUNS):
        parts = entry.name.split("/")
        if parts[-1] == REPORTS_FILE and len(parts) > 2 and parts[1] not in finished:
            times[parts[1]] = max(entry.modified, times.get(parts[1], 0.0))
    return max(times.items(), key=lambda item: item[1], default=None)


def _reports(work: Store, stage: str) -> list[dict[str, Any]]:
    """Return the reports of a stage: from its log, or with an object store from its newest checkpoint."""
    name = f"{_RUNS}/{stage}/{REPORTS_FILE}"
    data = work.get(name)
    if data is None:
        logs = [entry for entry in work.entries(f"{_RUNS}/{stage}") if entry.name.endswith(f"/{REPORTS_FILE}")]
        if not logs:
            return []
        name = max(logs, key=lambda entry: entry.modified).name
        data = work.get(name)
    return parse_log((data or b"").decode(errors="replace"), f"{work.uri}/{name}")
