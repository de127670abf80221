"""Tests of the whole job through its main function: counts, resumption, number of actors, rejected inputs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
import yaml

from lsr_prod.config import Deployment
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.errors import ConfigError, IncompleteWaveError, QuarantineOverflowError
from lsr_prod.jobs.training import score
from lsr_prod.storage import Store
from lsr_prod.training.data.training_rows import TrainingRow, cut_data, pin_files, read_rows
from lsr_prod.training.scoring.job import make_job, score_slice, score_training_rows
from lsr_prod.training.scoring.teacher import open_teacher
from tests.training.scoring.conftest import NOT_A_NUMBER, RAISES, random_rows, section, settings, teacher, write_lines

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
FILES, ROWS = 6, 40
LIMIT = {"max_bad_fraction": 0.2}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of rows, one slice per file, each with two bad rows and two rows on which the teacher fails."""
    folder = tmp_path_factory.mktemp("rows") / "rows"
    for number in range(FILES):
        good: list[Any] = random_rows(ROWS, seed=number)
        good[3]["negatives"][1] += f" {RAISES}"
        good[7]["query"] += f" {NOT_A_NUMBER}"
        write_lines(folder / f"{number}.jsonl", [*good[:20], "{", *good[20:], {"query": "w1", "positive": " "}])
    return folder


@pytest.fixture(scope="module")
def done(cross_encoder: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory, ray_local: None) -> Path:
    """Output of a run with two actors."""
    folder = tmp_path_factory.mktemp("done") / "out"
    assert run(cross_encoder, rows, folder)["actors"] == 2
    return folder


def run(model: Path, rows: Path, output: Path, **changes: Any) -> Any:
    data = {**LIMIT, **changes.pop("data", {})}
    return score_training_rows(Deployment(score=settings(model, rows, output, data=data, **changes)))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_config(folder: Path, values: dict[str, Any]) -> str:
    config = folder / "deployment.yaml"
    config.write_text(yaml.safe_dump({"score": values}))
    return str(config)


def test_job_scores_and_counts_then_second_run_does_nothing(
    cross_encoder: Path, rows: Path, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = Path(shutil.copytree(done, tmp_path / "out"))
    config = write_config(tmp_path, section(cross_encoder, rows, out, data=LIMIT))
    assert score.run(["--config", config]) == 0
    result = json.loads(capsys.readouterr().out.rpartition("RESULT ")[2])
    assert contents(out) == contents(done)
    good = FILES * (ROWS - 2)
    assert (result["rows"], result["scored"], result["quarantined"]) == (FILES * (ROWS + 2), good, 4 * FILES)
    assert result["quarantined.teacher_failed"] == 2 * FILES
    assert (result["quarantined.broken_json"], result["quarantined.missing_field: negatives"]) == (FILES, FILES)
    assert (result["pairs"], result["parts"], result["parts_reused"]) == (4 * good, FILES, FILES)
    table = pq.read_table(sorted(out.glob("part-*.parquet")))
    first = np.mean([scores[0] > max(scores[1:]) for scores in table["scores"].to_pylist()])
    assert result["positive_first_share"] == pytest.approx(first)
    lines = pq.read_table(result["quarantine"]).to_pylist()
    failed = [line for line in lines if line["reason"] == "teacher_failed"]
    assert sum("document 2 of the row (0 is the positive): IndexError" in line["detail"] for line in failed) == FILES
    assert (
        sum("document 0 of the row (0 is the positive): the model returned NaN" in line["detail"] for line in failed)
        == FILES
    )
    assert all(RAISES in line["raw"] or NOT_A_NUMBER in line["raw"] for line in failed)


def test_rows_keep_their_order_and_have_the_scores_of_the_teacher(cross_encoder: Path, rows: Path, done: Path):
    data = TrainingDataSettings(paths=[str(rows)], kind="negatives")
    pieces = cut_data(pin_files(data, {}), data, 1 << 20, {})
    source = [row for piece in pieces for _, row in read_rows(piece, data, {}, needs_negative=True)]
    good = [
        row
        for row in source
        if isinstance(row, TrainingRow)
        and not any(word in f"{row.query} {row.documents}" for word in (RAISES, NOT_A_NUMBER))
    ]
    table = pq.read_table(sorted(done.glob("part-*.parquet"))).to_pylist()
    assert [(row["query"], tuple(row["documents"])) for row in table] == [(row.query, row.documents) for row in good]
    scorer = open_teacher(cross_encoder, teacher(cross_encoder), batch_tokens=1, field="")  # one pair per batch
    expected, _ = scorer.score([(str(row.query), document) for row in good for document in row.documents])
    np.testing.assert_allclose([score for row in table for score in row["scores"]], expected, atol=1e-5)


def test_output_is_training_data_of_kind_scores(done: Path):
    data = TrainingDataSettings(paths=[str(done)], kind="scores")
    pieces = list(cut_data(pin_files(data, {}), data, 1 << 20, {}))
    found = [row for piece in pieces for _, row in read_rows(piece, data, {}, needs_negative=True)]
    assert len(found) == FILES * (ROWS - 2)
    assert all(isinstance(row, TrainingRow) and row.scores for row in found)


@pytest.mark.parametrize("kept", [(1, 3, 4), tuple(range(FILES))])
def test_run_resumes_from_existing_parts_with_other_actors(
    cross_encoder: Path, rows: Path, tmp_path: Path, done: Path, kept: tuple[int, ...]
):
    # Possible leftovers of an interrupted run: some parts, quarantine files without their part, no manifest.
    left = Path(shutil.copytree(done, tmp_path / "left"))
    (left / "_manifest.json").unlink()
    for part in set(range(FILES)) - set(kept):
        (left / f"part-{part:06d}.parquet").unlink()
    assert run(cross_encoder, rows, left, actors=1)["parts_reused"] == len(kept)
    assert contents(left) == contents(done)


def test_run_resumes_after_sigkill(cross_encoder: Path, rows: Path, tmp_path: Path, done: Path):
    values = section(cross_encoder, rows, tmp_path / "killed", actors=1, data=LIMIT)
    command = [sys.executable, str(ROOT / "jobs" / "score.py"), "--config", write_config(tmp_path, values)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--ray.address", ray.get_runtime_context().gcs_address],
            cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            until = time.monotonic() + 400
            while not list((tmp_path / "killed").glob("part-*.parquet")) and process.poll() is None:
                assert time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.001)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
    there = len(list((tmp_path / "killed").glob("part-*.parquet")))
    assert there >= 1, (tmp_path / "log").read_text()
    resumed = run(cross_encoder, rows, tmp_path / "killed", actors=1)
    assert resumed["parts_reused"] >= there
    assert contents(tmp_path / "killed") == contents(done)


def test_part_does_not_depend_on_the_parts_that_its_teacher_scored_before(dense: Path, rows: Path, tmp_path: Path):
    teacher = {"kind": "dense", "pooling": "mean", "scale": 20}
    job = make_job(Deployment(score=settings(dense, rows, tmp_path / "out", data=LIMIT, teacher=teacher)))
    open_scorer = job.opened([], Deployment())
    shared = open_scorer()
    for number, piece in enumerate(job.slices):
        for folder, scorer in (("shared", shared), ("alone", open_scorer())):
            score_slice(scorer, Store(str(tmp_path / folder)), job.digest, number, piece)
    assert len(list((tmp_path / "alone").glob("part-*.parquet"))) == FILES
    assert contents(tmp_path / "shared") == contents(tmp_path / "alone")


@pytest.mark.slow
def test_dense_teacher_does_not_depend_on_actors_or_on_what_other_parts_encoded(
    dense: Path, rows: Path, tmp_path: Path, ray_local: None
):
    how = {"teacher": {"kind": "dense", "pooling": "mean", "scale": 20}}
    for actors in (1, 2):
        assert run(dense, rows, tmp_path / str(actors), actors=actors, **how)["teacher"] == "dense"
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def rejection(capsys: pytest.CaptureFixture[str], config: str, output: Path) -> str:
    code = score.run(["--config", config])
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert not output.exists()
    noise = ('{"time"', "Loading weights")
    (line,) = [line for line in captured.err.splitlines() if line and not line.lstrip("\r").startswith(noise)]
    return line


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"teacher": {"model": "nowhere/at/all"}}, "score.teacher.model: there is no folder at nowhere/at/all"),
        ({"teacher": {"kind": "bert"}}, "score.teacher.kind: 'bert' is not possible"),
        ({"teacher": {"pooling": "mean"}}, "score.teacher: "),
        ({"teacher": {"kind": "dense"}}, "score.teacher.pooling: "),
        ({"teacher": {"max_length": 999}}, "score.teacher.max_length: 999 is more than the 48 tokens"),
        ({"data": {"paths": ["nowhere.jsonl"]}}, "score.data.paths: there is nothing"),
        ({"data": {"kind": "texts"}}, "score: "),
        ({"data": {"columns": {"query": "question"}}}, "score.data.columns: "),
        ({"batch_token": 3}, "score.batch_token: there is no such setting; did you mean batch_tokens?"),
    ],
)
def test_wrong_setting_is_rejected_before_anything_is_written(
    cross_encoder: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: Any, sentence: str
):
    config = write_config(tmp_path, section(cross_encoder, rows, tmp_path / "out", **changes))
    assert f"lsr-prod score: {sentence}" in rejection(capsys, config, tmp_path / "out")


def test_no_rows_or_no_gpu_is_rejected(
    cross_encoder: Path, rows: Path, tmp_path: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
):
    nothing = write_lines(tmp_path / "nothing.jsonl", [""])
    config = write_config(tmp_path, section(cross_encoder, nothing, tmp_path / "out"))
    assert "score.data.paths: the files contain no rows" in rejection(capsys, config, tmp_path / "out")
    config = write_config(tmp_path, section(cross_encoder, rows, tmp_path / "out", use_gpu=True))
    assert "score.use_gpu: the cluster has no GPU for an actor" in rejection(capsys, config, tmp_path / "out")
    config = write_config(tmp_path, section(cross_encoder, rows, tmp_path / "out", threads_per_actor=99))
    assert "score.threads_per_actor: no machine has 99 cores" in rejection(capsys, config, tmp_path / "out")


def test_too_many_bad_rows_fail_the_job(cross_encoder: Path, rows: Path, tmp_path: Path, ray_local: None):
    with pytest.raises(QuarantineOverflowError, match=r"12 of 252 rows are bad .*score\.data\.max_bad_fraction"):
        run(cross_encoder, rows, tmp_path / "before", data={"max_bad_fraction": 0.04})
    assert not (tmp_path / "before").exists()
    with pytest.raises(QuarantineOverflowError, match="teacher_failed"):
        run(cross_encoder, rows, tmp_path / "later", data={"max_bad_fraction": 0.08}, actors=1)
    assert not (tmp_path / "later" / "_manifest.json").exists()


def test_output_of_another_model_is_rejected(cross_encoder: Path, rows: Path, tmp_path: Path, done: Path):
    model = Path(shutil.copytree(cross_encoder, tmp_path / "model"))
    left = Path(shutil.copytree(done, tmp_path / "left"))
    assert run(model, rows, left)["parts_reused"] == FILES  # the place of a model does not matter
    (model / "added.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"^score\.output: .* another model; give another folder"):
        run(model, rows, left)
    with pytest.raises(ConfigError, match=r"^score\.output: "):
        run(cross_encoder, rows, left, batch_tokens=64)
    assert contents(left) == contents(done)


def test_part_with_lost_rows_fails_the_job(cross_encoder: Path, rows: Path, tmp_path: Path, done: Path):
    left = Path(shutil.copytree(done, tmp_path / "left"))
    (left / "_manifest.json").unlink()
    # The part has fewer rows and a footer that agrees: only the count before the job shows that the slice had more.
    table = pq.read_table(left / "part-000001.parquet")
    counts = json.loads(table.schema.metadata[b"lsr_prod.scored"])
    counts |= {"rows": counts["rows"] - 1, "scored": counts["scored"] - 1}
    short = table.slice(1).replace_schema_metadata({b"lsr_prod.scored": json.dumps(counts)})
    pq.write_table(short, left / "part-000001.parquet")
    with pytest.raises(IncompleteWaveError, match=r"slice 1 has 42 rows, .*delete .*part-000001\.parquet"):
        run(cross_encoder, rows, left)
    assert not (left / "_manifest.json").exists()
