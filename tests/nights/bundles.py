"""Bundles of models with equal vocabularies and different weights."""

from pathlib import Path

import torch

from lsr_prod.config import ExportSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle

__all__ = ["make_bundle"]


def make_bundle(checkpoint: Path, folder: Path, number: int) -> Path:
    """Export the checkpoint with weights that differ by number; 0 is the checkpoint itself."""
    encoder = SparseEncoder.load(checkpoint, document_max_length=64, query_max_length=32)
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for weight in encoder.parameters():
            if number and weight.ndim > 1:
                weight.mul_(1 + 0.05 * torch.randn(weight.shape, generator=generator))
    encoder.save(folder / f"model-{number}")
    export_bundle(ExportSettings(model=str(folder / f"model-{number}"), output=str(folder / f"bundle-{number}")))
    return folder / f"bundle-{number}"
