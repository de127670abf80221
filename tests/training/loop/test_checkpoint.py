from pathlib import Path

import pytest
import torch

from lsr_prod.errors import ArtifactError, DigestMismatchError, LineageError
from lsr_prod.training.loop.checkpoint import Checkpoint, read_checkpoint, write_checkpoint


def _checkpoint() -> Checkpoint:
    weights = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor(3.5)}
    return Checkpoint(7, {"weights": weights, "optimizer": {}}, {"guard": {"empty_document": 2}})


def test_checkpoint_round_trip_is_bit_identical(tmp_path: Path) -> None:
    written = _checkpoint()
    write_checkpoint(tmp_path, written, name="stage")
    found = read_checkpoint(tmp_path, name="stage")
    assert (found.step, found.state) == (7, written.state)
    assert found.tensors["optimizer"] == {}
    assert all(torch.equal(found.tensors["weights"][name], value) for name, value in written.tensors["weights"].items())


def test_read_checkpoint_rejects_other_stage(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, _checkpoint(), name="stage")
    with pytest.raises(LineageError, match="of stage stage, not of other"):
        read_checkpoint(tmp_path, name="other")


def test_read_checkpoint_detects_damage(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, _checkpoint(), name="stage")
    data = bytearray((tmp_path / "weights.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "weights.safetensors").write_bytes(data)
    with pytest.raises(DigestMismatchError):
        read_checkpoint(tmp_path, name="stage")


def test_read_checkpoint_rejects_missing_record(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, _checkpoint(), name="stage")
    (tmp_path / "checkpoint.json").unlink()
    with pytest.raises(ArtifactError, match="is missing"):
        read_checkpoint(tmp_path, name="stage")
