"""Settings that all training loops share: optimizer, distribution and memory, reports."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from lsr_prod.config.location import LocalPath
from lsr_prod.config.section import Section
from lsr_prod.errors import ConfigError

Share = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(Section):
    """AdamW and its learning rate."""

    learning_rate: float = Field(
        2e-5, gt=0, allow_inf_nan=False, description="learning rate after the warm-up, the highest"
    )
    schedule: Literal["linear", "cosine", "constant"] = Field("linear", description="decay of the learning rate to 0")
    schedule_steps: int | None = Field(
        None,
        ge=1,
        description="steps over which the learning rate decays; longer than the training: it ends above 0; "
        "default: all steps",
    )
    warmup_share: float = Field(0.05, ge=0, lt=1, description="share of the steps used for the warm-up")
    warmup_steps: int | None = Field(None, ge=0, description="number of warm-up steps; replaces warmup_share")
    weight_decay: float = Field(
        0.01, ge=0, allow_inf_nan=False, description="weight decay of matrices; biases and norms have none"
    )
    betas: tuple[Share, Share] = Field((0.9, 0.999), description="betas of AdamW")
    epsilon: float = Field(1e-8, gt=0, description="epsilon of AdamW")
    max_grad_norm: float | None = Field(
        1.0, gt=0, description="maximum norm of the gradients, clipped above it; null: no clipping"
    )


class LoraSettings(Section):
    """Low-rank updates (LoRA) instead of training all weights; they are merged into the weights at the end."""

    rank: int = Field(16, ge=1, description="rank of an update")
    alpha: int = Field(32, ge=1, description="updates are scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the input of an update")
    targets: list[str] = Field(
        [], description="names of the linear modules to update; empty: all linear modules of the backbone"
    )
    train_head_bias: bool = Field(True, description="also train the bias of the vocabulary head")


class ScaleSettings(Section):
    """Distribution over workers, precision and memory."""

    strategy: Literal["ddp", "fsdp"] = Field(
        "ddp", description="ddp: every worker holds the model; fsdp: every worker holds a shard of it"
    )
    precision: Literal["fp32", "bf16"] = Field("fp32", description="bf16: autocast; weights and accumulation stay fp32")
    gradient_checkpointing: bool = Field(False, description="save memory: recompute layers in the backward pass")
    kept_layers: int = Field(
        1,
        ge=1,
        description="gradient_checkpointing: number of last layers that are not recomputed; each costs memory "
        "and saves time",
    )
    lora: LoraSettings | None = Field(None, description="train low-rank updates only")
    attention: Literal["torch", "flash"] = Field(
        "torch",
        description="torch: torch's scaled dot products; flash: FlashAttention 2, which skips the padding of a batch. "
        "It needs a GPU, precision bf16, the package flash_attn and an encoder (no decoder)",
    )

    @model_validator(mode="after")
    def _flash_has_half_precision(self) -> Self:
        if self.attention == "flash" and self.precision != "bf16":
            raise ValueError("attention: flash computes in half precision; set precision to bf16")
        return self


class WatchSettings(Section):
    """Reports of a run, and early stopping on a collapse."""

    every: int = Field(10, ge=1, description="steps between two reports")
    tensorboard: LocalPath | None = Field(
        None, description="folder for TensorBoard logs; TensorBoard has to be installed"
    )
    mlflow: str | None = Field(None, description="tracking URI of MLflow; MLflow has to be installed")
    wandb: str | None = Field(
        None,
        max_length=128,
        pattern=r"^([\w.-]+/)?[\w.-]+$",
        description="project of Weights & Biases, or entity/project; pip install 'lsr_prod[wandb]'. The environment "
        "has the key (WANDB_API_KEY), WANDB_MODE=offline to upload later with wandb sync, and WANDB_DIR for the files; "
        "default of the latter: the folder of the reports",
    )
    l0_target: int | None = Field(
        None,
        ge=1,
        description="target number of active terms per document; the run is stopped if it is ten times as high "
        "at the end of the ramps",
    )
    patience: int = Field(50, ge=1, description="consecutive reports of a collapse before the run is stopped")

    @field_validator("wandb")
    @classmethod
    def _is_no_key(cls, project: str | None) -> str | None:
        if project is not None and (re.fullmatch(r"[0-9a-f]{40}", project) or project.startswith("wandb_v1_")):
            raise ConfigError(
                "watch.wandb", "it looks like a key, not like a project", "set WANDB_API_KEY in the environment"
            )
        return project
