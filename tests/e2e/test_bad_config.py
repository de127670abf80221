"""Every job refuses a wrong setting with exit code 2 and one line with field and remedy, and writes nothing."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lsr_prod.jobs.command import load

JOBS = ("export", "encode", "index build", "evaluate", "reindex", "train")
ROOT = Path(__file__).parents[2]
# One impossible number per job, in a section that it reads.
NEGATIVE = {
    "export": "export.top_k",
    "encode": "encode.batch_tokens",
    "index build": "index.dk",
    "evaluate": "evaluate.k",
    "reindex": "encode.batch_tokens",
    "train": "train.workers",
}
MISSING = {
    "export": "export.model",
    "encode": "source.paths",
    "index build": "index.table",
    "evaluate": "evaluate.index",
    "reindex": "source.paths",
    "train": "train.model",
}


@pytest.fixture
def deployment(tmp_path: Path, tiny_bundle: Path) -> dict[str, Any]:
    """Complete deployment whose inputs exist, except those that jobs create."""
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "a text"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    folder = str(tmp_path)
    return {
        "source": {"paths": [f"{folder}/corpus.jsonl"]},
        "export": {"model": f"{folder}/model", "output": f"{folder}/bundle"},
        "encode": {"bundle": str(tiny_bundle), "table": f"{folder}/table"},
        "index": {"table": f"{folder}/table", "bundle": str(tiny_bundle), "output": f"{folder}/index"},
        "train": {
            "model": f"{folder}/model",
            "output": f"{folder}/trained",
            "work": f"{folder}/work",
            "stages": [
                {
                    "data": {"paths": [f"{folder}/pairs.jsonl"], "kind": "pairs"},
                    "steps": 1,
                    "objective": {"losses": [{"loss": "info_nce"}]},
                }
            ],
        },
        "evaluate": {
            "index": f"{folder}/index",
            "queries": f"{folder}/queries.jsonl",
            "qrels": f"{folder}/qrels.tsv",
        },
    }


def _set(deployment: dict[str, Any], field: str, value: Any) -> None:
    section, name = field.split(".")
    deployment[section][name] = [value] if name == "paths" else value


def _refused(job: str, deployment: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    config = folder / "deployment.yaml"
    config.write_text(yaml.safe_dump(deployment))
    before = sorted(folder.rglob("*"))
    code = load(job).run(["--config", str(config), *argv])
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert sorted(folder.rglob("*")) == before
    lines = [line for line in captured.err.splitlines() if not line.startswith('{"time"')]
    assert len(lines) == 1, captured.err
    assert captured.out == ""
    return lines[0]


@pytest.mark.parametrize("job", JOBS)
def test_misspelled_key_is_refused_with_suggestion(
    job: str, deployment: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section, name = NEGATIVE[job].split(".")
    deployment[section][name + "s"] = 3
    line = _refused(job, deployment, tmp_path, capsys)
    assert f"{section}.{name}s" in line
    assert f"did you mean {name}?" in line


@pytest.mark.parametrize("job", JOBS)
def test_impossible_number_is_refused_with_bound(
    job: str, deployment: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = _refused(job, deployment, tmp_path, capsys, f"--{NEGATIVE[job]}", "-1")
    assert NEGATIVE[job] in line
    assert "greater than or equal to" in line


@pytest.mark.parametrize("job", JOBS)
def test_missing_path_is_refused(
    job: str, deployment: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _set(deployment, MISSING[job], str(tmp_path / "nowhere"))
    line = _refused(job, deployment, tmp_path, capsys)
    assert MISSING[job] in line
    assert "nowhere" in line


@pytest.mark.parametrize("job", JOBS)
def test_missing_section_is_refused(
    job: str, deployment: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = MISSING[job].split(".")[0]
    del deployment[section]
    line = _refused(job, deployment, tmp_path, capsys)
    assert f"{section}: this section is missing" in line


@pytest.mark.parametrize(
    ("section", "settings", "problem"),
    [
        ("evaluate", {"baseline": "bm52"}, "evaluate.baseline: there is no system 'bm52'"),
        ("evaluate", {"k": 10}, "evaluate.k: 10 hits are too few for R@100"),
        ("index", {"text_fields": []}, "evaluate.bm25: the index has no text for BM25"),
        (
            "gates",
            {"judged_queries": __file__, "judged_qrels": __file__, "max_loss": 0.1, "measure": "nDGC@10"},
            "gates.measure: a measure is unknown",
        ),
        ("gates", {"golden_queries": "/nowhere"}, "gates.golden_queries: there is no file at /nowhere"),
    ],
)
def test_settings_of_the_last_steps_of_a_night_are_checked_first(
    section: str,
    settings: dict[str, Any],
    problem: str,
    deployment: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deployment["index"]["text_fields"] = ["text"]
    deployment.setdefault(section, {}).update(settings)
    assert problem in _refused("reindex", deployment, tmp_path, capsys)


@pytest.mark.parametrize("job", JOBS)
def test_script_ends_with_exit_code_of_its_job(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(ROOT / "jobs" / f"{job.split()[0]}.py")
    monkeypatch.setattr(sys, "argv", [script, "--config", str(tmp_path / "absent.yaml")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr().err == _absent(job, tmp_path)


@pytest.mark.long
def test_exit_code_reaches_shell(tmp_path: Path) -> None:
    script = [sys.executable, "jobs/encode.py", "--config", str(tmp_path / "absent.yaml")]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, _absent("encode", tmp_path))


def _absent(job: str, folder: Path) -> str:
    problem = "cannot be read (No such file or directory); give a YAML file"
    return f"lsr-prod {job}: --config: {folder}/absent.yaml {problem}\n"
