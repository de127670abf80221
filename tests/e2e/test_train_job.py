"""The job ``train``: wrong settings end in one line, a chain succeeds, an interrupted one is resumed."""

import copy
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

from lsr_prod.jobs.training import train
from lsr_prod.model import model_digest
from lsr_prod.storage import Store
from lsr_prod.training.lineage import lineage
from tests.e2e.conftest import small_chain

ROOT = Path(__file__).parents[2]
Settings = dict[str, Any]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of one stage of a few steps on pairs of words."""
    return small_chain(tmp_path) | {"ray": {"num_cpus": 2}}


def config(tmp_path: Path, settings: Settings) -> str:
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump(settings))
    return str(tmp_path / "deployment.yaml")


def result(stdout: str) -> dict[str, Any]:
    line = next(line for line in stdout.splitlines() if line.startswith("RESULT "))
    return dict(json.loads(line.removeprefix("RESULT ")))


VALIDATION = dict.fromkeys(("corpus", "queries", "qrels"), "/nowhere")


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        ("stage", {"data": {"paths": ["/nowhere"], "kind": "pairs"}}, "train.stages.0.data.paths: there is nothing at"),
        ("stage", {"data": {"paths": ["PAIRS"], "kind": "pairs", "columns": {"positive": "pos"}}}, "data.columns"),
        ("stage", {"data": {"paths": ["PAIRS"], "kind": "texts"}}, "data.kind cannot be texts"),
        ("stage", {"data": {"paths": ["PAIRS"], "kind": "pears"}}, "train.stages.0.data.kind"),
        ("stage", {"step": 4}, "did you mean steps?"),
        ("stage", {"epochs": 1}, "give steps or epochs"),
        ("stage", {"objective": {"losses": [{"loss": "kl"}]}}, "margin_mse and kl need data.kind scores"),
        ("stage", {"objective": {"losses": [{"loss": "info_nce", "temperature": 0}]}}, "losses.0.temperature"),
        ("stage", {"scale": {"lora": {"targets": ["nix"]}}}, "train.stages.0.scale.lora.targets"),
        ("stage", {"validation": VALIDATION}, "train.stages.0.validation.corpus"),
        ("stage", {"document_max_length": 10_000}, "train.stages.0.document_max_length"),
        ("train", {"model": "/nowhere/model"}, "train.model: there is no folder at /nowhere/model"),
        ("train", {"output": "PAIRS"}, "train.output"),
        ("train", {"work": "PAIRS"}, "train.work"),
        ("train", {"workers": 9}, "train.workers"),
        ("train", {"stages": []}, "train.stages"),
        ("train", {"workers": 1, "min_workers": 2}, "min_workers is more than workers"),
        ("ray", {"address": "127.0.0.1:1"}, "ray.address: nothing answers at 127.0.0.1:1"),
    ],
)
def test_wrong_setting_is_reported_in_one_line_and_nothing_is_written(
    settings: Settings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    change: Settings,
    words: str,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # an earlier test may have left a connection
    target = settings["train"]["stages"][0] if place == "stage" else settings[place]
    target |= json.loads(json.dumps(change).replace("PAIRS", str(tmp_path / "pairs.jsonl")))
    argv = ["--config", config(tmp_path, settings)]
    before = sorted(tmp_path.rglob("*"))
    assert train.run(argv) == 2
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.splitlines() if line.startswith("lsr-prod train")]
    assert words in line
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def check_trained(stdout: str, settings: Settings) -> None:
    """Check what a job of one stage printed, and the model that it made."""
    output = Path(settings["train"]["output"])
    assert result(stdout)["model_digest"] == model_digest(output)
    assert "┃ stage ┃ kind" in stdout
    found = lineage(output, Store(settings["train"]["work"]))
    assert found[0].training is not None
    assert (found[0].training["stage"], found[0].training["steps"]) == ("finetune", 3)


@pytest.mark.long
def test_chain_succeeds(
    settings: Settings, tmp_path: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.run(["--config", config(tmp_path, settings)]) == 0
    check_trained(capsys.readouterr().out, settings)


@pytest.mark.slow
def test_killed_job_resumes_at_its_stage(settings: Settings, tmp_path: Path) -> None:
    first = settings["train"]["stages"][0]
    settings["train"]["stages"].append({**copy.deepcopy(first), "seed": 2, "steps": 40, "checkpoint_every": 5})
    command = [sys.executable, "jobs/train.py", "--config", config(tmp_path, settings)]
    work = tmp_path / "work"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        deadline = time.monotonic() + 300
        while not _second_stage_saved(work):
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(list((work / "stages").iterdir())) == 1
    assert not (tmp_path / "trained").exists()
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    rows = result(done.stdout)["stage_rows"]
    assert [row["skipped"] for row in rows] == [True, False]
    resumed = result(done.stdout)["model_digest"]
    settings["train"] |= {"work": str(tmp_path / "work2"), "output": str(tmp_path / "whole")}
    command[-1] = config(tmp_path, settings)
    whole = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=400)
    assert result(whole.stdout)["model_digest"] == resumed


def _second_stage_saved(work: Path) -> bool:
    """Return whether the first stage is finished and the second has a checkpoint."""
    done = [path.stem for path in work.glob("stages/*.json")]
    return bool(done) and any(
        path.parent.name not in done and path.is_dir() for path in work.glob("runs/*/checkpoint_*")
    )
