"""Products are in bf16 where that saves time, unless the settings decide."""

from pathlib import Path

import pytest
import torch

from lsr_prod.config.language import ScaleSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.encoder_setup import uses_bf16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("found", "width", "expected"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, 256, True),
        ({"avx512_bf16": False, "amx_bf16": True}, 768, True),
        ({"avx512_bf16": True, "amx_bf16": True}, 255, False),
        ({"avx512_bf16": False, "amx_bf16": False, "avx512_f": True}, 768, False),
        ({"neon": True}, 768, False),
    ],
)
def test_auto_is_bf16_for_wide_models_on_processors_with_it(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, bool], width: int, expected: bool
) -> None:
    encoder = SparseEncoder.load(tiny_model)
    encoder.model.config.hidden_size = width
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert uses_bf16(encoder, ScaleSettings(), CPU) is expected
    assert uses_bf16(encoder, ScaleSettings(precision="bf16"), CPU)
    assert not uses_bf16(encoder, ScaleSettings(precision="fp32"), CPU)


def test_names_of_the_capabilities_are_those_of_torch() -> None:
    found = torch.cpu.get_capabilities()
    assert found["architecture"] != "x86_64" or {"avx512_bf16", "amx_bf16"} <= set(found)
