import json
import shutil
from pathlib import Path

import pytest
import torch
from pyarrow.fs import LocalFileSystem

from lsr_prod.training.loop.checkpoint import Checkpoint, write_checkpoint
from lsr_prod.training.loop.ray_train import find_checkpoint, remove_strays

FILES = LocalFileSystem()
LIST = "checkpoint_manager_snapshot.json"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 10, 20 and 30; the last two are listed, as Ray Train lists them."""
    for step in (10, 20, 30):
        folder = tmp_path / f"checkpoint_2026-{step}"
        folder.mkdir()
        write_checkpoint(folder, Checkpoint(step, {"weights": {"a": torch.ones(3)}}, {}), name="stage")
    _list(tmp_path, 20, 30)
    return tmp_path


def _list(run: Path, *steps: int) -> None:
    results = [{"checkpoint_dir_name": f"checkpoint_2026-{step}", "metrics": {"step": step}} for step in steps]
    (run / LIST).write_text(json.dumps({"checkpoint_results": results}))


def _found(run: Path) -> str | None:
    path = find_checkpoint(FILES, str(run), name="stage")
    return None if path is None else Path(path).name


def test_valid_list_is_left_to_ray_train(run: Path) -> None:
    before = (run / LIST).read_bytes()
    assert _found(run) is None
    assert (run / LIST).read_bytes() == before


def test_find_checkpoint_returns_none_before_first_run(tmp_path: Path) -> None:
    assert find_checkpoint(FILES, str(tmp_path / "nothing"), name="stage") is None
    assert _found(tmp_path) is None


@pytest.mark.parametrize("half", ["", "{", '{"checkpoint_results": [{"checkp', "{}", "[]", "7"])
def test_truncated_list_is_replaced_by_newest_complete_checkpoint(run: Path, half: str) -> None:
    (run / LIST).write_text(half)
    assert _found(run) == "checkpoint_2026-30"
    assert not (run / LIST).exists()
    assert _found(run) == "checkpoint_2026-30"  # and so on until a list is written again


def test_checkpoint_without_list_is_used(run: Path) -> None:
    (run / LIST).unlink()
    assert _found(run) == "checkpoint_2026-30"


@pytest.mark.parametrize("damage", ["truncated", "missing part", "no record", "half a record", "gone", "another's"])
def test_incomplete_checkpoints_are_skipped(run: Path, damage: str) -> None:
    newest = run / "checkpoint_2026-30"
    record, part = newest / "checkpoint.json", newest / "weights.safetensors"
    match damage:
        case "truncated":
            part.write_bytes(part.read_bytes()[:-1])
        case "missing part":
            part.unlink()
        case "no record":
            record.unlink()
        case "half a record":
            record.write_bytes(record.read_bytes()[:40])
        case "gone":
            shutil.rmtree(newest)
        case _:
            record.write_text(record.read_text().replace('"stage"', '"other"'))
    assert _found(run) == "checkpoint_2026-20"
    assert not (run / LIST).exists()


def test_unlisted_damaged_folder_is_ignored(run: Path) -> None:
    (run / "checkpoint_2026-40").mkdir()
    (run / "checkpoint_2026-40" / "weights.safetensors").write_bytes(b"half")
    assert _found(run) is None


def test_remove_strays_deletes_only_unlisted_checkpoints(run: Path) -> None:
    (run / "steps.jsonl").write_text("")
    (run / "checkpoint_2026-40").mkdir()
    remove_strays(FILES, str(run))
    assert sorted(path.name for path in run.iterdir()) == [
        "checkpoint_2026-20", "checkpoint_2026-30", LIST, "steps.jsonl",
    ]  # fmt: skip
    (run / LIST).write_text("{")
    remove_strays(FILES, str(run))
    assert (run / "checkpoint_2026-20").exists()
