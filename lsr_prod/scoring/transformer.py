"""Reading of the transformers of teachers, and their inputs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.model.card_update import longest_input
from lsr_prod.model.loading import without_load_report

PRECISIONS: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Value of the setting ``precision`` -> torch's type of the weights."""

_LONGEST = 1_000_000  # tokenizers without a maximum have a number far above it


def read_model(folder: Path, loader: Any, *, field: str, optional: tuple[str, ...] = ()) -> Any:
    """Read a transformer; weights are read from safetensors only and no code of the model is run.

    Returns:
        The model, in float32 on the CPU.
    """
    try:
        with without_load_report():
            model, report = loader.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
            )
    except SafetensorError as error:
        raise ConfigError(field, f"the weights of {folder} are damaged ({error})", "copy them again") from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            field, f"transformers cannot read {folder} ({reason})", "give a folder with config.json and safetensors"
        ) from error
    if missing := [name for name in sorted(report["missing_keys"]) if not name.startswith(optional)]:
        raise ConfigError(
            field,
            f"{folder} has no weights for {', '.join(missing[:3])}: it is not trained for this",
            "give a trained model of the kind that teacher.kind names",
        )
    return model


def longest_text(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast, wanted: int | None, stored: int | None, *, field: str
) -> int:
    """Return the maximum number of tokens of an input."""
    positions = longest_input(config) if getattr(config, "max_position_embeddings", None) else _LONGEST
    if wanted is not None and wanted > positions:
        raise ConfigError(
            field, f"{wanted} is more than the {positions} tokens of the model", f"set it to {positions} or less"
        )
    longest = wanted or min(positions, stored or tokenizer.model_max_length)
    if longest >= _LONGEST:
        raise ConfigError(field, "neither the model nor its tokenizer has a maximum number of tokens", "set it")
    return longest


def input_tensors(rows: Sequence[Sequence[int]], padding: int, device: torch.device) -> dict[str, Tensor]:
    """Return ``input_ids`` and ``attention_mask``, int64 [n, longest row], padded at the end."""
    shape = (len(rows), max(len(row) for row in rows))
    input_ids = torch.full(shape, padding)
    attention_mask = torch.zeros(shape, dtype=torch.int64)
    for i, row in enumerate(rows):
        input_ids[i, : len(row)] = torch.tensor(row)
        attention_mask[i, : len(row)] = 1
    return {"input_ids": input_ids.to(device), "attention_mask": attention_mask.to(device)}
