"""How a stage with a training loop is trained, whatever it minimises: optimizer, memory and time, reports."""

from typing import Annotated, Literal

from pydantic import Field

from lsr_prod.config.section import Section

__all__ = ["LoraSettings", "OptimizerSettings", "ScaleSettings", "WatchSettings"]


Share = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(Section):
    """AdamW and its learning rate."""

    learning_rate: float = Field(2e-5, gt=0, allow_inf_nan=False, description="the highest rate, after the warm-up")
    schedule: Literal["linear", "cosine", "constant"] = Field("linear", description="how the rate falls to 0")
    schedule_steps: int | None = Field(
        None, ge=1, description="steps over which it falls; unset: all. A longer one is never finished"
    )
    warmup_share: float = Field(0.05, ge=0, lt=1, description="share of the steps over which the rate rises")
    warmup_steps: int | None = Field(None, ge=0, description="steps over which it rises, in place of warmup_share")
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False, description="of matrices; biases and norms have none")
    betas: tuple[Share, Share] = Field((0.9, 0.999), description="AdamW's")
    epsilon: float = Field(1e-8, gt=0, description="AdamW's")
    max_grad_norm: float | None = Field(1.0, gt=0, description="gradients are scaled down to this norm; null: never")


class LoraSettings(Section):
    """Low-rank updates in place of all weights; they are merged into the weights at the end."""

    rank: int = Field(16, ge=1, description="rank of an update")
    alpha: int = Field(32, ge=1, description="updates are scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="of the input of an update")
    targets: list[str] = Field(
        [], description="names of the linear modules that are updated; empty: all of the backbone's"
    )
    train_head_bias: bool = Field(True, description="the bias of the vocabulary head is trained too")


class ScaleSettings(Section):
    """How the model is spread and how memory is traded for time."""

    strategy: Literal["ddp", "fsdp"] = Field("ddp", description="ddp: every worker has the model; fsdp: a shard of it")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="bf16: autocast; weights and sums stay fp32")
    gradient_checkpointing: bool = Field(False, description="layers are computed again in the backward pass")
    kept_layers: int = Field(
        1, ge=1, description="gradient_checkpointing: layers at the end that are not; each costs memory and saves time"
    )
    lora: LoraSettings | None = Field(None, description="train low-rank updates only")


class WatchSettings(Section):
    """What is reported of a run, and when it is ended early."""

    every: int = Field(10, ge=1, description="steps between two reports")
    tensorboard: str | None = Field(None, description="folder for TensorBoard, which has to be installed")
    mlflow: str | None = Field(None, description="tracking URI of MLflow, which has to be installed")
    l0_target: int | None = Field(
        None,
        ge=1,
        description="active terms of a document that are aimed at: ten times as many at the end of the "
        "ramps end the run",
    )
    patience: int = Field(50, ge=1, description="reports in a row that have to show a collapse before the run ends")
