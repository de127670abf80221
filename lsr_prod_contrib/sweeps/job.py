"""Sweep job: encode every text once, measure the missing points on Ray, report all of them.

A finished slice or point is a file in the output folder, named by a digest of everything that decides it. So a killed
sweep resumes, a finished one only reads, and changed lists of settings compute only what is new.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lsr_prod.cluster import ray_session
from lsr_prod.cluster.workers import require_files, require_shared_folders
from lsr_prod.config import Deployment
from lsr_prod.errors import ArtifactError
from lsr_prod.evaluation.validation import Collection
from lsr_prod.evaluation.vector_evaluation import Encoded, measure_levels
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE
from lsr_prod_contrib.sweeps.patches import write_report
from lsr_prod_contrib.sweeps.plan import PlannedPoint, Point, SweepPlan, make_plan, point_bytes, read_point
from lsr_prod_contrib.sweeps.report import COSTS, SweepReport, make_report
from lsr_prod_contrib.sweeps.vectors import VectorSlice, encode_slice, read_slices

log = get_log("lsr_prod.sweeps")

_READERS = 32  # concurrent reads of points: each is bound by the latency of the store
_PROGRESS_S = 10.0


def run_sweep(deployment: Deployment) -> Mapping[str, Any]:
    """Run the sweep of the section ``sweep`` and return a summary without the points, which ``sweep.json`` has."""
    start = time.perf_counter()
    report, reused = sweep(deployment)
    assert deployment.sweep is not None
    output, choice = deployment.sweep.output.rstrip("/"), report.choice
    return {
        "points": len(report.points),
        "points_reused": reused,
        "collections": len(report.queries),
        "measure": report.measure,
        "cost": report.cost,
        "best": str(choice.best),
        "best_value": choice.best_value,
        "best_cost": choice.best_cost,
        "chosen": str(choice.setting),
        "chosen_value": choice.value,
        "chosen_cost": choice.cost,
        "p": choice.p,
        "sentence": report.sentence,
        "front": [
            {
                "collection": name,
                "setting": str(point.setting),
                "value": point.report.measures[report.measure],
                **{cost: getattr(point.report, cost) for cost in COSTS},
            }
            for name, fronts in report.fronts.items()
            for point in (report.points[place] for place in fronts[report.cost])
        ],
        "seconds": time.perf_counter() - start,
        "report": f"{output}/sweep.json",
        "patch": f"{output}/patch.yaml",
    }


def sweep(deployment: Deployment) -> tuple[SweepReport, int]:
    """Measure every model at every level on every collection, and write ``sweep.json`` and ``patch.yaml``.

    Returns:
        The report, and the number of points that an earlier run had measured.
    """
    plan = make_plan(deployment)
    points = plan.points
    measured = set(plan.output.names("points"))
    reused = sum(point.name in measured for point in points)
    log.info("planned", extra={"fields": {"points": len(points), "reused": reused, "groups": len(plan.groups)}})
    if reused < len(points):
        with ray_session(deployment.ray):
            _check_nodes(plan)
            _measure(plan, measured)
    report = make_report(
        _read_points(plan.output, points),
        deployment,
        bundles={name: model.place for name, model in plan.models.items()},
        queries={name: list(collection.queries) for name, collection in plan.collections.items()},
        documents={name: len(collection.documents) for name, collection in plan.collections.items()},
    )
    result = report.result()
    write_report(plan.output.uri, "sweep.json", result, result["chosen"], plan.output.options)
    return report, reused


def measure_group(
    names: Mapping[str, Sequence[str]],
    collection: Collection,
    points: Sequence[PlannedPoint],
    measures: Sequence[str],
    output: Store,
) -> int:
    """Measure points of one group and store each as soon as it is measured.

    Returns:
        Number of points.
    """
    documents, queries = (
        Encoded(list(texts), read_slices(output, names[kind]), list(texts.values()))
        for kind, texts in (("document", collection.documents), ("query", collection.queries))
    )
    by_level = {point.level: point.name for point in points}
    for level, report in measure_levels(documents, queries, collection.qrels, list(by_level), measures=measures):
        output.put_new(by_level[level], point_bytes(report))
    return len(points)


def _check_nodes(plan: SweepPlan) -> None:
    """Refuse local folders that some node does not see."""
    for name, model in plan.models.items():
        if not is_remote(model.place):
            manifest = Path(model.place) / BUNDLE_FILE
            require_files(f"sweep.models.{name}.bundle", [(str(manifest), manifest.stat().st_size)])
    require_shared_folders({"sweep.output": plan.output.uri})


def _measure(plan: SweepPlan, measured: set[str]) -> None:
    """Encode what the missing points need, then measure them."""
    import ray

    from lsr_prod.cluster.tasks import run_tasks

    todo = [(group, [point for point in group.points if point.name not in measured]) for group in plan.groups]
    todo = [(group, points) for group, points in todo if points]
    encoded = set(plan.output.names("vectors"))
    # Collections are sent to each node once, not once per task.
    shared = {name: ray.put(collection) for name, collection in plan.collections.items()}
    texts = {
        name: (ray.put([*collection.documents.values()]), ray.put([*collection.queries.values()]))
        for name, collection in plan.collections.items()
    }
    slices: dict[str, tuple[Any, ...]] = {}
    for group, _ in todo:
        for piece in plan.slices[group.model.name, group.collection]:
            if piece.name not in encoded:
                slices[piece.name] = (piece, group.model.place, *texts[group.collection], plan.output)
    sizes = [item[0].stop - item[0].start for item in slices.values()]
    _log_progress("encoded", sizes, run_tasks(encode_slice, list(slices.values()), task="encoding texts of a sweep"))
    items: list[tuple[Any, ...]] = []
    for group, points in todo:
        names = _names(plan.slices[group.model.name, group.collection])
        items.append((names, shared[group.collection], points, plan.settings.measures, plan.output))
    _log_progress(
        "measured", [len(points) for _, points in todo], run_tasks(measure_group, items, task="measuring a sweep")
    )


def _names(slices: Sequence[VectorSlice]) -> dict[str, list[str]]:
    return {kind: [piece.name for piece in slices if piece.kind == kind] for kind in ("document", "query")}


def _log_progress(event: str, sizes: Sequence[int], done: Iterable[tuple[int, int]]) -> None:
    """Log the finished share of the work every few seconds, and at its end."""
    began = logged = time.monotonic()
    finished, total = 0, sum(sizes)
    for _, count in done:
        finished, now = finished + count, time.monotonic()
        if now - logged >= _PROGRESS_S or finished == total:
            logged = now
            left = (now - began) / finished * (total - finished)
            fields = {"done": finished, "of": total, "seconds": round(now - began, 1), "left_s": round(left)}
            log.info(event, extra={"fields": fields})


def _read_points(output: Store, points: Sequence[PlannedPoint]) -> list[Point]:
    def read(point: PlannedPoint) -> Point:
        data = output.get(point.name)
        if data is None:
            raise ArtifactError(f"{output.uri} lacks {point.name}; run the sweep again")
        return read_point(data, f"{output.uri}/{point.name}", point.collection, point.setting)

    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(read, points))
