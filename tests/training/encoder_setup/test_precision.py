"""Which trainings multiply in bf16."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lsr_prod.config.language import ScaleSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.inference import session
from lsr_prod.model import SparseEncoder
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.encoder_setup import uses_bf16
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def _encoder(folder: Path, width: int) -> SparseEncoder:
    encoder = SparseEncoder.load(folder)
    encoder.model.config.hidden_size = width
    return encoder


@pytest.mark.parametrize(
    ("found", "width", "expected"),
    [
        ("flags : sse avx512_bf16 avx512f", 256, True),
        ("flags : amx_bf16", 768, True),
        ("flags : avx512_bf16 amx_bf16", 255, False),
        ("flags : avx512f avx512_vnni bf16", 768, False),
        (None, 768, False),
    ],
)
def test_auto_is_bf16_for_wide_models_on_processors_with_it(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str | None, width: int, expected: bool
) -> None:
    if found is not None:
        (tmp_path / "cpuinfo").write_text(found)
    monkeypatch.setattr(session, "_CPUINFO", tmp_path / "cpuinfo")
    encoder = _encoder(tiny_model, width)
    assert uses_bf16(encoder, ScaleSettings(), CPU) is expected
    assert uses_bf16(encoder, ScaleSettings(precision="bf16"), CPU)
    assert not uses_bf16(encoder, ScaleSettings(precision="fp32"), CPU)


@pytest.mark.parametrize("has", [False, True])
def test_auto_is_bf16_for_wide_models_on_gpus_with_it(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, has: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has)
    assert uses_bf16(_encoder(tiny_model, 256), ScaleSettings(), GPU) is has
    assert not uses_bf16(_encoder(tiny_model, 128), ScaleSettings(), GPU)


def test_flash_attention_is_never_left_at_fp32(tiny_model: Path) -> None:
    assert uses_bf16(_encoder(tiny_model, 128), ScaleSettings(attention="flash"), GPU)


@pytest.mark.parametrize(
    ("precision", "found", "told"),
    [
        ("bf16", "flags : avx512f", True),
        ("bf16", "flags : avx512_bf16", False),
        ("auto", "flags : avx512f", False),
    ],
)
def test_an_emulated_bf16_is_told(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    precision: str,
    found: str,
    told: bool,
) -> None:
    (tmp_path / "cpuinfo").write_text(found)
    monkeypatch.setattr(session, "_CPUINFO", tmp_path / "cpuinfo")
    rows = SampleRows([Example(np.array([2, 8, 3], np.int32), (np.array([2, 8, 3], np.int32),), None)] * 4)
    settings = FinetuneSettings.model_validate(
        {"data": {"paths": ["x"], "kind": "pairs"}, "batch": {"queries": 2}, "steps": 1, "objective": {"losses": [
            {"loss": "info_nce"}]}, "scale": {"precision": precision}}
    )  # fmt: skip
    Trainer(_encoder(tiny_model, 256), rows, settings, Group(0, 1, CPU))
    assert ("bf16 is emulated" in caplog.text) is told
