"""Tests of the whole job through its main function: counts, resumption, number of actors, rejected inputs."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import yaml

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.errors import ConfigError, IncompleteWaveError
from lsr_prod.jobs.training import mine
from lsr_prod.training.negatives.job import mine_negatives
from tests.indexing.corpus import Doc, make_index
from tests.training.negatives.conftest import QUERIES, TEXTS, deployment, pairs_by_id, settings, write_lines

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
FILES = 6


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of pairs, one slice per file: every query is in every file, and the first query has two positives."""
    folder = tmp_path_factory.mktemp("data") / "pairs"
    folder.mkdir()
    for number in range(FILES):
        rows: list[Any] = [{**row, "query": f"{row['query']} {number}"} for row in pairs_by_id()]
        rows += [{"query": QUERIES[0][0], "pid": ("lock", "semaphore")[number % 2]}]
        write_lines(folder / f"{number}.jsonl", rows)
    return folder


RULES: dict[str, Any] = {"sample": "random", "batch": 4, "at_least": 3, "margin": 1}


@pytest.fixture(scope="module")
def done(mined_index: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory, ray_local: None) -> Path:
    """Output of a run with two actors."""
    folder = tmp_path_factory.mktemp("done") / "out"
    assert mine_negatives(deployment(settings(mined_index, pairs, folder, **RULES)))["actors"] == 2
    return folder


def write_config(folder: Path, **section: Any) -> str:
    config = folder / "deployment.yaml"
    config.write_text(yaml.safe_dump({"mine": section}))
    return str(config)


def run(capsys: pytest.CaptureFixture[str], config: str, *argv: str) -> dict[str, Any]:
    code = mine.run(["--config", config, *argv])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    result: dict[str, Any] = json.loads(captured.out.rpartition("RESULT ")[2])
    return result


def section(folder: Path, pairs: Path, out: Path, **changes: Any) -> dict[str, Any]:
    return {
        "data": {"paths": [str(pairs)], "kind": "pairs"}, "positive_id": "pid", "index": str(folder),
        "output": str(out), "depth": 12, "negatives": 3, **changes,
    }  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_job_mines_and_counts_then_second_run_does_nothing(
    mined_index: Path, pairs: Path, tmp_path: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
):
    pairs = Path(shutil.copytree(pairs, tmp_path / "pairs"))
    with (pairs / "0.jsonl").open("a") as file:
        file.write('{"query": "", "pid": "lock"}\n{"query": "square root", "pid": "absent"}\n')
    config = write_config(
        tmp_path, **section(mined_index, pairs, tmp_path / "out", margin_ratio=0.3, at_least=2, scores=True)
    )
    first = run(capsys, config)
    out = tmp_path / "out"
    table = pq.read_table(sorted(out.glob("part-*.parquet")))
    lines = pq.read_table(first["quarantine"]).to_pylist()
    assert first["rows"] == 9 * FILES + 2 == first["mined"] + first["quarantined"]
    assert (first["mined"], first["quarantined"]) == (table.num_rows, len(lines))
    assert first["negatives"] == sum(map(len, table["negatives"].to_pylist()))
    assert (first["quarantined.empty_query"], first["quarantined.unknown_positive"]) == (1, 1)
    assert first["quarantined.too_few_negatives"] == sum(line["reason"] == "too_few_negatives" for line in lines) > 0
    assert first["dropped.positive"] >= table.num_rows
    assert first["dropped.known_positive"] > 0
    assert first["dropped.false_negative"] > 0
    own = sum(first[f"dropped.{rule}"] for rule in ("positive", "known_positive", "near_positive"))
    hits = first["negatives"] + sum(count for name, count in first.items() if name.startswith("dropped."))
    assert first["own_positive_share"] == own / hits > 0
    assert first["suspicious"] == 0
    assert first["queries_per_s"] > 0
    assert (first["parts"], first["parts_reused"], first["actors"]) == (FILES, 0, 2)
    for row in table.to_pylist():
        assert all(score < 0.3 * row["positive_score"] for score in row["negative_scores"])
        assert not {row["positive_id"], "empty"} & set(row["negative_ids"])
        assert 2 <= len(row["negatives"]) == len({" ".join(text.split()) for text in row["negatives"]})
        if row["query"] == QUERIES[0][0]:
            assert not {"lock", "lock-copy", "semaphore"} & set(row["negative_ids"])
    before = contents(out)
    second = run(capsys, config)
    assert contents(out) == before
    assert second["parts_reused"] == FILES
    counted = [name for name in first if name.startswith(("rows", "mined", "neg", "quar", "dropped"))]
    assert [first[name] for name in counted] == [second[name] for name in counted]
    _is_training_data(out)


def _is_training_data(out: Path) -> None:
    """Check that the output is training data of the kinds negatives and scores, with their column names."""
    schema = pq.read_schema(out / "part-000000.parquet")
    texts, floats = pa.list_(pa.string()), pa.list_(pa.float32())
    types = {"query": pa.string(), "positive": pa.string(), "negatives": texts, "documents": texts, "scores": floats}
    for kind in ("negatives", "scores"):
        data = TrainingDataSettings.model_validate({"paths": [str(out)], "kind": kind})
        assert {name: schema.field(name).type for name in data.fields} == {name: types[name] for name in data.fields}


def test_negatives_with_the_words_of_their_positives_are_refused(
    mined_index: Path, tmp_path: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
):
    # The index holds the positives with their words in another order, which the comparison of shingles cannot find.
    rows = [{"query": query, "positive": " ".join(reversed(TEXTS[doc_id].split()))} for query, doc_id in QUERIES]
    made = section(mined_index, write_lines(tmp_path / "pairs.jsonl", rows), tmp_path / "out")
    assert mine.run(["--config", write_config(tmp_path, **made)]) == 1
    captured = capsys.readouterr()
    sentence = (
        r"(\d+) of (\d+) mined negatives have nearly the same words as the positive of their row, mine.max_suspicious "
        r"is 0.05; the index may hold the positives in another form: name the column of their ids in mine.positive_id, "
        r"lower mine.own_share, or raise the limit"
    )
    found = re.search(sentence, captured.err)
    assert found is not None, captured.err
    assert not (tmp_path / "out" / "_manifest.json").exists()
    raised = run(capsys, write_config(tmp_path, **made, max_suspicious=1))  # the finished parts are used
    assert (raised["suspicious"], raised["negatives"]) == tuple(map(int, found.groups()))
    assert raised["parts_reused"] == 1


def test_rows_do_not_depend_on_the_number_of_actors(
    mined_index: Path, pairs: Path, tmp_path: Path, ray_local: None, done: Path
):
    made = settings(mined_index, pairs, tmp_path / "one", actors=1, **RULES)
    assert mine_negatives(deployment(made))["actors"] == 1
    assert contents(tmp_path / "one") == contents(done)
    assert any(name.startswith("_quarantine") for name in contents(done))


@pytest.mark.parametrize("kept", [(1, 3, 4), tuple(range(FILES))])
def test_run_resumes_from_existing_parts(
    mined_index: Path, pairs: Path, tmp_path: Path, ray_local: None, done: Path, kept: tuple[int, ...]
):
    # Possible leftovers of an interrupted run: some parts, quarantine files without their part, no manifest.
    left = Path(shutil.copytree(done, tmp_path / "left"))
    (left / "_manifest.json").unlink()
    for part in set(range(FILES)) - set(kept):
        (left / f"part-{part:06d}.parquet").unlink()
    summary = mine_negatives(deployment(settings(mined_index, pairs, left, **RULES)))
    assert summary["parts_reused"] == len(kept)
    assert contents(left) == contents(done)


def test_run_resumes_after_sigkill(mined_index: Path, pairs: Path, tmp_path: Path, ray_local: None, done: Path):
    made = section(mined_index, pairs, tmp_path / "killed", actors=1, **RULES)
    config = write_config(tmp_path, **made)
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, str(ROOT / "jobs" / "mine.py"), "--config", config, "--ray.address", address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            until = time.monotonic() + 240
            while not list((tmp_path / "killed").glob("part-*.parquet")) and process.poll() is None:
                assert time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.001)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
    there = len(list((tmp_path / "killed").glob("part-*.parquet")))
    assert there >= 1, (tmp_path / "log").read_text()
    resumed = mine_negatives(deployment(settings(mined_index, pairs, tmp_path / "killed", **RULES)))
    assert resumed["parts_reused"] >= there
    assert contents(tmp_path / "killed") == contents(done)


def test_teacher_scores_are_read_and_written(
    mined_index: Path, pairs: Path, tmp_path: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
):
    generator = np.random.default_rng(0)
    queries = {json.loads(line)["query"] for path in pairs.iterdir() for line in path.read_text().splitlines()}
    given = {(query, doc_id): round(float(generator.normal()), 3) for query in sorted(queries) for doc_id in TEXTS}
    lines = [{"query": query, "doc_id": doc_id, "score": score} for (query, doc_id), score in given.items()]
    teacher = {"paths": [str(write_lines(tmp_path / "teacher.jsonl", lines))]}
    made = section(mined_index, pairs, tmp_path / "out", margin=0.5, scores=True, teacher=teacher)
    run(capsys, write_config(tmp_path, **made))
    table = pq.read_table(sorted((tmp_path / "out").glob("part-*.parquet")))
    assert table.num_rows > 0
    for row in table.to_pylist():
        expected = [given[row["query"], doc_id] for doc_id in (row["positive_id"], *row["negative_ids"])]
        assert row["scores"] == pytest.approx(expected, abs=1e-6)
        assert all(score < expected[0] - 0.5 for score in expected[1:])


def _mine_with_model(index: Path, pairs: Path, bundle: Path, output: Path, actors: int) -> None:
    teacher = {"model": {"kind": "sparse", "model": str(bundle)}}
    made = settings(index, pairs, output, margin_ratio=0.9, scores=True, teacher=teacher, actors=actors)
    assert mine_negatives(deployment(made))["mined"] > 0


def test_teacher_model_scores_hits(mined_index: Path, pairs: Path, tiny_bundle: Path, tmp_path: Path, ray_local: None):
    _mine_with_model(mined_index, pairs, tiny_bundle, tmp_path / "out", 1)
    for row in pq.read_table(sorted((tmp_path / "out").glob("part-*.parquet"))).to_pylist():
        # The teacher is the encoder of the index, whose impacts are rounded.
        assert row["scores"] == pytest.approx([row["positive_score"], *row["negative_scores"]], rel=0.1, abs=0.5)


@pytest.mark.slow
def test_parts_of_a_teacher_model_do_not_depend_on_actors(
    mined_index: Path, pairs: Path, tiny_bundle: Path, tmp_path: Path, ray_local: None
):
    for actors in (1, 2):
        _mine_with_model(mined_index, pairs, tiny_bundle, tmp_path / str(actors), actors)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def rejection(capsys: pytest.CaptureFixture[str], config: str, output: Path, *argv: str) -> str:
    code = mine.run(["--config", config, *argv])
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert not output.exists()
    (line,) = [line for line in captured.err.splitlines() if not line.startswith('{"time"')]
    return line


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"index": "nowhere"}, "mine.index: there is nothing at nowhere"),
        ({"depth": 20_000}, "mine.depth: 20000 is not possible; input should be less than or equal to 10000"),
        ({"negatives": 13}, "mine: "),
        ({"text_fields": ["body"]}, "mine.text_fields: "),
        ({"data": {"paths": ["nowhere.jsonl"], "kind": "pairs"}}, "mine.data.paths: there is nothing"),
        ({"teacher": {"paths": ["nowhere.jsonl"]}, "margin": 1}, "mine.teacher.paths: there is nothing"),
        (
            {"teacher": {"model": {"kind": "dense", "model": "nowhere/at/all"}}, "margin": 1},
            "mine.teacher.model.model: there is no folder at nowhere/at/all",
        ),
        ({"depht": 3}, "mine.depht: there is no such setting; did you mean depth?"),
    ],
)
def test_wrong_setting_is_rejected_before_anything_is_written(
    mined_index: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: Any, sentence: str
):
    config = write_config(tmp_path, **section(mined_index, pairs, tmp_path / "out", **changes))
    assert f"lsr-prod mine: {sentence}" in rejection(capsys, config, tmp_path / "out")


def test_no_rows_or_too_many_threads_is_rejected(
    mined_index: Path, pairs: Path, tmp_path: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
):
    nothing = write_lines(tmp_path / "nothing.jsonl", [""])
    config = write_config(tmp_path, **section(mined_index, nothing, tmp_path / "out"))
    assert "mine.data.paths: the files contain no rows" in rejection(capsys, config, tmp_path / "out")
    config = write_config(tmp_path, **section(mined_index, pairs, tmp_path / "out", threads_per_actor=99))
    assert "mine.threads_per_actor: no machine has 99 cores" in rejection(capsys, config, tmp_path / "out")


def test_too_many_bad_rows_stop_the_job_before_mining(
    mined_index: Path, tmp_path: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
):
    pairs = write_lines(tmp_path / "pairs.jsonl", [*pairs_by_id(), *["{"] * 8])
    config = write_config(tmp_path, **section(mined_index, pairs, tmp_path / "out"))
    assert mine.run(["--config", config]) == 1
    assert "8 of 16 rows are bad (broken_json 8), mine.data.max_bad_fraction is " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_output_of_another_index_version_is_rejected(
    corpus: dict[str, Doc], tiny_bundle: Path, pairs: Path, tmp_path: Path, done: Path
):
    make_index(tmp_path / "index", {name: doc for name, doc in corpus.items() if name != "zip"}, bundle=tiny_bundle)
    left = Path(shutil.copytree(done, tmp_path / "left"))
    with pytest.raises(ConfigError, match=r"^mine\.output: .* another index version; give another folder"):
        mine_negatives(deployment(settings(tmp_path / "index", pairs, left, **RULES)))
    assert contents(left) == contents(done)


def test_part_with_lost_rows_fails_the_job(mined_index: Path, pairs: Path, tmp_path: Path, ray_local: None, done: Path):
    left = Path(shutil.copytree(done, tmp_path / "left"))
    (left / "_manifest.json").unlink()
    # The part has fewer rows and a footer that agrees: only the survey shows that the slice had more.
    table = pq.read_table(left / "part-000001.parquet")
    counts = json.loads(table.schema.metadata[b"lsr_prod.mined"])
    counts |= {"rows": counts["rows"] - 1, "mined": counts["mined"] - 1}
    short = table.slice(1).replace_schema_metadata({b"lsr_prod.mined": json.dumps(counts)})
    pq.write_table(short, left / "part-000001.parquet")
    with pytest.raises(IncompleteWaveError, match=r"slice 1 has 9 rows, .*delete .*part-000001\.parquet"):
        mine_negatives(deployment(settings(mined_index, pairs, left, **RULES)))
    assert not (left / "_manifest.json").exists()
