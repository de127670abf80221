"""Stage ``finetune`` on Ray Train with real workers, validations and checkpoints."""

import contextlib
import json
import math
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

from lsr_prod.config import Deployment
from lsr_prod.errors import EncoderRaisedError, TrainingCollapsedError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.chain import run_chain
from lsr_prod.training.loop.rate import RATES
from lsr_prod.training.observers.reports import read_log
from tests.training.small import difference, small_collection, small_start, small_training, weights_of

pytestmark = pytest.mark.usefixtures("ray_local")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_start(tmp_path_factory.mktemp("start") / "bert")


def _train(folder: Path, start: Path, *, workers: int = 1, **stage: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    settings = small_training(folder, start, workers=workers, **stage)
    return run_chain(Deployment.model_validate(settings))["stage_rows"][0]


@contextmanager
def _listeners() -> Iterator[set[str]]:
    """Collect the addresses that child processes listen on while the block runs."""
    found: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.3):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    connections = process.net_connections("tcp")
                    found.update(one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _losses(folder: Path) -> list[float]:
    (log,) = (folder / "work" / "runs").glob("*/steps.jsonl")
    return [report["values"]["loss"] for report in read_log(log)]


@pytest.mark.long
def test_two_workers_train_validate_and_keep_best_weights(tmp_path: Path, start: Path) -> None:
    validation = {**small_collection(tmp_path, 3), "keep_best": "RR@10"}
    with _listeners() as listeners:
        row = _train(tmp_path, start, workers=2, batch={"queries": 9, "chunk": 4}, validation=validation)
    assert listeners <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert listeners
    (run,) = (tmp_path / "work" / "runs").iterdir()
    reports = read_log(run / "steps.jsonl")
    assert [report["step"] for report in reports] == list(range(13))
    assert reports[-1]["values"]["loss"] < reports[1]["values"]["loss"]
    judged = {r["step"]: r["values"]["validation/RR@10"] for r in reports if "validation/RR@10" in r["values"]}
    assert sorted(judged) == [0, 3, 6, 9, 12]
    assert (row["rows"], row["steps"], row["start"], row["best"]) == (42, 12, judged[0], max(judged.values()))
    assert judged[row["best_step"]] == row["best"]
    checkpoints = sorted(run.glob("checkpoint_2*"))
    assert [json.loads((one / "checkpoint.json").read_text())["step"] for one in checkpoints] == [8, 12]
    best = load_file(checkpoints[-1] / "best.safetensors")
    trained = SparseEncoder.load(tmp_path / "out").model.state_dict()
    assert best
    assert all((trained[name] == value).all() for name, value in best.items())


@pytest.mark.long
@pytest.mark.parametrize("every", [1, 100])
def test_collapse_ends_training_at_once(tmp_path: Path, start: Path, every: int) -> None:
    optimizer = {"learning_rate": 1e30, "max_grad_norm": None, "warmup_steps": 0}
    validation = small_collection(tmp_path, 2)
    with pytest.raises((TrainingCollapsedError, EncoderRaisedError), match=r"step \d+: .*lower|not finite"):
        _train(tmp_path, start, optimizer=optimizer, watch={"every": every}, validation=validation, checkpoint_every=1)
    assert len(list((tmp_path / "work" / "runs").glob("*/steps.jsonl"))) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_resumed_run_keeps_the_learning_rate_that_it_found(tmp_path: Path, start: Path) -> None:
    row = _train(tmp_path, start, optimizer={"learning_rate": "auto"})
    (run,) = (tmp_path / "work" / "runs").iterdir()
    rates = [report["values"]["learning_rate"] for report in read_log(run / "steps.jsonl")]
    assert row["learning_rate"] == max(rates)
    assert RATES[0] / 10 < max(rates) < RATES[-1] / 10
    whole = weights_of(tmp_path / "out")
    shutil.rmtree(sorted(run.glob("checkpoint_2*"))[-1])
    (run / "checkpoint_manager_snapshot.json").unlink()
    shutil.rmtree(tmp_path / "work" / "stages")
    shutil.rmtree(tmp_path / "out")
    _train(tmp_path, start, optimizer={"learning_rate": "auto"})
    again = read_log(run / "steps.jsonl")
    assert [report["step"] for report in again] == list(range(1, 13))
    assert [report["values"]["learning_rate"] for report in again] == rates
    assert weights_of(tmp_path / "out") == whole


@pytest.mark.slow
def test_card_length_changes_validation_and_card_but_not_training(tmp_path: Path, start: Path) -> None:
    """Vocabulary transfer trains at 256 tokens and evaluates at 512: here 4 (two words) and 40."""
    validation = small_collection(tmp_path, 3)
    stage = {"steps": 3, "document_max_length": 4, "validation": validation}
    changes = {"same": {}, "longer": {"card_document_max_length": 40}}
    rows = {name: _train(tmp_path / name, start, **{**stage, **change}) for name, change in changes.items()}
    assert weights_of(tmp_path / "same" / "out") == weights_of(tmp_path / "longer" / "out")
    lengths = {name: SparseEncoder.load(tmp_path / name / "out").card.document_max_length for name in changes}
    assert lengths == {"same": 4, "longer": 40}
    assert rows["longer"]["validation/l0_document"] > rows["same"]["validation/l0_document"]


@pytest.mark.slow
def test_collapse_to_equal_vectors_ends_training_of_two_workers(tmp_path: Path, start: Path) -> None:
    changes: dict[str, Any] = {
        "batch": {"queries": 8},
        "data": {"paths": [str(tmp_path / "rows.jsonl")], "kind": "pairs", "columns": {}},
        "objective": {"losses": [{"loss": "info_nce"}]},
        "optimizer": {"learning_rate": 0.1, "warmup_steps": 0},
        "watch": {"every": 1, "patience": 6},
    }
    with pytest.raises(TrainingCollapsedError, match=r"step \d+: all (documents|queries) have nearly the same vector"):
        _train(tmp_path, start, workers=2, **changes)
    (log,) = (tmp_path / "work" / "runs").glob("*/steps.jsonl")
    last = read_log(log)[-1]["values"]
    assert last["chance"] == pytest.approx(math.log(8))
    assert last["loss"] == pytest.approx(last["chance"], rel=0.05)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_keep_best_keeps_start_and_stops_if_training_does_not_help(tmp_path: Path, start: Path, workers: int) -> None:
    validation = {**small_collection(tmp_path, 2), "measures": ["Rprec", "RR@10"], "keep_best": "RR@10"}
    # A learning rate of about 0 never changes a rank.
    row = _train(
        tmp_path, start, workers=workers, optimizer={"learning_rate": 1e-12}, checkpoint_every=100,
        validation={**validation, "stop_after": 2},
    )  # fmt: skip
    assert (row["steps"], row["best_step"], row["stopped_early"]) == (4, 0, True)
    assert row["start"] == row["best"] == row["validation/RR@10"]
    note = "training did not help: the untrained weights were kept (RR@10 was "
    assert row["note"].startswith(note)
    assert json.loads((tmp_path / "out" / "training.json").read_text())["note"] == row["note"]
    before, after = (SparseEncoder.load(one).model.state_dict() for one in (start, tmp_path / "out"))
    assert all((before[name] == after[name]).all() for name in before)
    (run,) = (tmp_path / "work" / "runs").iterdir()
    assert [report["step"] for report in read_log(run / "steps.jsonl")] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_stage_trained_again_is_equal_to_the_bit(tmp_path: Path, start: Path) -> None:
    for name in ("a", "b"):
        _train(tmp_path / name, start, workers=2, dropout=0.1)
    assert weights_of(tmp_path / "a" / "out") == weights_of(tmp_path / "b" / "out")
    assert _losses(tmp_path / "a") == _losses(tmp_path / "b")


@pytest.mark.slow
def test_fsdp_ddp_and_one_worker_agree(
    tmp_path: Path, start: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, two, shards = (tmp_path / name for name in ("one", "two", "shards"))
    _train(one, start, dropout=0.0)
    _train(two, start, workers=2, dropout=0.0)
    shards.mkdir()
    settings = small_training(shards, start, workers=2, dropout=0.0, scale={"strategy": "fsdp"})
    settings["train"]["work"], settings["storage"] = f"s3://lsr/{tmp_path.name}", {"options": s3_options}
    row = run_chain(Deployment.model_validate(settings))["stage_rows"][0]
    assert _losses(two) == pytest.approx(_losses(one), abs=1e-4)
    assert row["loss"] == pytest.approx(_losses(two)[-1], abs=1e-4)
    assert difference(one / "out", two / "out") < 1e-4
    assert difference(two / "out", shards / "out") < 1e-4


@pytest.mark.slow
def test_low_rank_updates_are_merged_into_weights(tmp_path: Path, start: Path) -> None:
    _train(tmp_path, start, scale={"lora": {"rank": 4}}, batch={"queries": 8, "accumulate": 2})
    before, after = (
        SparseEncoder.load(start).model.state_dict(),
        SparseEncoder.load(tmp_path / "out").model.state_dict(),
    )
    assert before.keys() == after.keys()
    changed = {name for name in before if not (before[name] == after[name]).all()}
    assert any("attention" in name for name in changed)
    assert not any("LayerNorm" in name or "embeddings" in name for name in changed)
