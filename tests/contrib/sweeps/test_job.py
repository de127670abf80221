import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from lsr_prod.config import Deployment
from lsr_prod.config.training import ValidationSettings
from lsr_prod.evaluation.validation import read_collection
from lsr_prod.evaluation.vector_evaluation import Encoded, encode_with_bundle, evaluate
from lsr_prod.jobs.command import main
from lsr_prod.storage import Store
from lsr_prod_contrib.sweeps.job import run_sweep, sweep

POINTS = 12
_LATENCY = "match_p50_ms"


def deployment(section: dict[str, Any], output: Path, **changes: Any) -> Deployment:
    return Deployment.model_validate({"sweep": {**section, "output": str(output), **changes}})


def timeless(output: Path) -> Any:
    """Return the points of a report without their latencies, which differ from run to run."""
    result = json.loads((output / "sweep.json").read_text())
    return [{name: value for name, value in point.items() if name != _LATENCY} for point in result["points"]]


@pytest.fixture(scope="module")
def output(section: dict[str, Any], ray_local: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a finished sweep."""
    folder = tmp_path_factory.mktemp("sweep") / "out"
    summary = run_sweep(deployment(section, folder))
    assert (summary["points"], summary["points_reused"]) == (POINTS, 0)
    return folder


@pytest.mark.long
def test_points_equal_an_evaluation_of_the_same_vectors(
    output: Path, section: dict[str, Any], tiny_bundle: Path
) -> None:
    places = {name: value for name, value in section["collections"][0].items() if name != "name"}
    collection = read_collection(ValidationSettings(**places, measures=section["measures"]))
    texts = list(collection.documents.values())
    documents = Encoded(list(collection.documents), encode_with_bundle(tiny_bundle, texts, "document", texts))
    asked = list(collection.queries.values())
    queries = Encoded(list(collection.queries), encode_with_bundle(tiny_bundle, asked, "query", texts))
    expected = evaluate(
        documents, queries, collection.qrels, levels=[(3, 8)], thresholds=[0.4], measures=section["measures"]
    )[0]
    (found,) = [one for one in timeless(output) if (one["qk"], one["dk"], one["threshold"]) == (3, 8, 0.4)]
    assert found["measures"] == pytest.approx(expected.measures)
    assert found["flops"] == pytest.approx(expected.flops)
    assert found["matched"] == expected.matched


@pytest.mark.long
def test_finished_sweep_is_only_read_and_longer_lists_add_points(
    output: Path, section: dict[str, Any], ray_local: None
) -> None:
    written = {path: path.stat().st_mtime_ns for path in output.rglob("*/*")}
    assert sweep(deployment(section, output))[1] == POINTS
    assert sweep(deployment(section, output, thresholds=[0.0]))[1] == POINTS // 2
    report, reused = sweep(deployment(section, output, thresholds=[0.0, 0.2, 0.4], prunings=[(0, 8)]))
    assert (len(report.points), reused) == (3, 2)
    run_sweep(deployment(section, output))
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert len(list((output / "points").iterdir())) == POINTS + 1


@pytest.mark.long
def test_command_prints_the_front_and_writes_the_page(
    output: Path, section: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, pages = tmp_path / "sweep.yaml", tmp_path / "pages"
    config.write_text(yaml.safe_dump({"report": str(pages), "sweep": {**section, "output": str(output)}}))
    assert main(["sweep", "--config", str(config)]) == 0
    printed = capsys.readouterr().out
    assert "Pareto front of RR@10 against flops" in printed
    result = json.loads(printed[printed.index("RESULT ") :].removeprefix("RESULT "))
    assert result["pages"] == [str(pages / "sweep.html")]
    assert result["points_reused"] == POINTS


@pytest.mark.long
def test_killed_sweep_resumes_with_its_points_and_equals_an_uninterrupted_one(
    output: Path, section: dict[str, Any], ray_local: None, tmp_path: Path
) -> None:
    config, killed = tmp_path / "sweep.yaml", tmp_path / "out"
    config.write_text(yaml.safe_dump({"ray": {"num_cpus": 1}, "sweep": {**section, "output": str(killed)}}))
    command = [sys.executable, "-m", "lsr_prod", "sweep", "--config", str(config)]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(command, start_new_session=True, env=environment, stdout=log, stderr=log)
        while job.poll() is None and not any((killed / "points").glob("*.json")):
            time.sleep(0.001)
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    finished = {path.name: path.stat().st_mtime_ns for path in (killed / "points").glob("[!.]*.json")}
    assert 0 < len(finished) < POINTS, (tmp_path / "log").read_text()
    _, reused = sweep(deployment(section, killed))
    assert reused >= len(finished)
    after = {path.name: path.stat().st_mtime_ns for path in (killed / "points").glob("[!.]*.json")}
    assert {name: after[name] for name in finished} == finished
    assert timeless(killed) == timeless(output)


@pytest.mark.long
def test_sweep_in_an_object_store_reuses_its_points(
    section: dict[str, Any], ray_local: None, s3_options: dict[str, str], tmp_path: Path
) -> None:
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    asked = Deployment.model_validate(
        {"sweep": {**section, "prunings": [(0, 8)], "output": store.uri}, "storage": {"options": s3_options}}
    )
    assert [sweep(asked)[1] for _ in range(2)] == [0, 2]
    assert {name.partition("/")[0] for name in store.names()} == {"points", "vectors", "sweep.json", "patch.yaml"}
    assert list(tmp_path.iterdir()) == []
