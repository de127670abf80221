"""Settings of the stages that several families share. Sizes and rates are ours, for small models and few steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results.material import Material

STEPS = 60
Stage = Mapping[str, Any]


def finetune(
    regularizers: Sequence[Mapping[str, Any]] = (
        {"regularizer": "flops", "query": 0.02, "document": 0.02, "ramp": "quadratic"},
    ),
    *,
    steps: int = STEPS,
    learning_rate: float = 3e-4,
    **objective: Any,
) -> Stage:
    """Fine-tuning on pairs: InfoNCE over the batch and the regularizers."""
    loss = {"loss": "info_nce", "temperature": 5.0}
    sparsity = {"regularizers": [dict(one) for one in regularizers], **objective.pop("sparsity", {})}
    return {
        "stage": "finetune",
        "data": {"paths": ["none"], "kind": "pairs"},
        "batch": {"queries": 24},
        "steps": steps,
        "objective": {"losses": [loss], "sparsity": sparsity, **objective},
        "optimizer": {"learning_rate": learning_rate, "warmup_share": 0.1},
        "scale": {"precision": "bf16"},
        "dropout": 0.0,
        "seed": 0,
    }


def adapt_mlm(steps: int = 100, **changes: Any) -> Stage:
    """Masked language modeling of the embeddings after a vocabulary transfer (vocabulary-transfer, 4.2.3)."""
    return {
        "stage": "adapt_mlm",
        "data": {"paths": ["none"], "kind": "texts"},
        "batch": {"texts": 32},
        "steps": steps,
        "max_length": 64,
        "mask_rate": 0.3,
        "optimizer": {"learning_rate": 3e-4, "schedule": "cosine", "warmup_share": 0.2},
        "scale": {"precision": "bf16"},
        "dropout": 0.0,
        "seed": 0,
        **changes,
    }


def calibrate(rate: float, material: Material, per: str = "vocabulary") -> Stage:
    """Activation potential calibration (vocabulary-transfer, 4.2.3)."""
    data = {"paths": [str(material.file("pages"))], "kind": "texts"}
    found = {"stage": "calibrate", "activation_rate": rate, "data": data, "texts": 128, "max_length": 48}
    if per == "term":
        return {**found, "per": "term"}
    return {**found, "negative_shift": "allow"}  # small stand-ins may be sparser than the rate


def rescale(material: Material) -> Stage:
    """Division of the head by the constant that ``auto`` chooses."""
    data = {"paths": [str(material.file("rows"))], "kind": "pairs"}
    return {"stage": "rescale_head", "alpha": "auto", "data": data, "pairs": 128}
