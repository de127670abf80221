"""Settings of stages that train on plain text: masked and causal language modeling, and head distillation."""

import re
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from lsr_prod.config.section import LocalPath, Location, Problems, Section, TextData
from lsr_prod.errors import ConfigError

Share = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(Section):
    """AdamW and its learning rate."""

    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"] = 2e-5
    """learning rate after the warm-up, the highest; auto: found before the first step, by up to 48 steps of trial"""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """decay of the learning rate to 0"""
    schedule_steps: int | None = Field(None, ge=1)
    """steps over which the learning rate decays; longer than the training: it ends above 0; default: all steps"""
    warmup_share: float = Field(0.05, ge=0, lt=1)
    """share of the steps used for the warm-up"""
    warmup_steps: int | None = Field(None, ge=0)
    """number of warm-up steps; replaces warmup_share"""
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False)
    """weight decay of matrices; biases and norms have none"""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """betas of AdamW"""
    epsilon: float = Field(1e-8, gt=0)
    """epsilon of AdamW"""
    max_grad_norm: float | None = Field(1.0, gt=0)
    """maximum norm of the gradients, clipped above it; null: no clipping"""

    def _problems(self) -> Problems:
        yield from self._unread("schedule_steps", need="schedule linear or cosine", met=self.schedule != "constant")


class LoraSettings(Section):
    """Low-rank updates (LoRA) instead of training all weights; they are merged into the weights at the end."""

    rank: int = Field(16, ge=1)
    """rank of an update"""
    alpha: int = Field(32, ge=1)
    """updates are scaled by alpha / rank"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """dropout on the input of an update"""
    targets: list[str] = Field([])
    """names of the linear modules to update; empty: all linear modules of the backbone"""
    train_head_bias: bool = True
    """also train the bias of the vocabulary head"""


class ScaleSettings(Section):
    """Distribution over workers, precision and memory."""

    strategy: Literal["ddp", "fsdp"] = "ddp"
    """ddp: every worker holds the model; fsdp: every worker holds a shard of it"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """type of matrix products (autocast; weights and sums stay fp32). auto: bf16 if the processor or GPU multiplies it
    in hardware and hidden states have 256 numbers or more, else fp32"""
    gradient_checkpointing: bool = False
    """save memory: recompute layers in the backward pass"""
    kept_layers: int = Field(1, ge=1)
    """gradient_checkpointing: number of last layers that are not recomputed; each costs memory and saves time"""
    lora: LoraSettings | None = None
    """train low-rank updates only"""
    attention: Literal["torch", "flash"] = "torch"
    """torch: torch's scaled dot products; flash: FlashAttention 2, which skips the padding of a batch. It needs a GPU,
    precision bf16 or auto, the package flash_attn and an encoder (no decoder)"""

    def _problems(self) -> Problems:
        if self.attention == "flash" and self.precision == "fp32":
            yield "attention: flash computes in half precision; set precision to bf16"
        yield from self._unread("kept_layers", need="gradient_checkpointing", met=self.gradient_checkpointing)


class WatchSettings(Section):
    """Reports of a run, and early stopping on a collapse."""

    every: int = Field(10, ge=1)
    """steps between two reports"""
    tensorboard: LocalPath | None = None
    """folder for TensorBoard logs; TensorBoard has to be installed"""
    mlflow: str | None = None
    """tracking URI of MLflow; MLflow has to be installed"""
    wandb: str | None = Field(None, max_length=128, pattern=r"^([\w.-]+/)?[\w.-]+$")
    """project of Weights & Biases, or entity/project; pip install 'lsr_prod[wandb]'. The environment has the key
    (WANDB_API_KEY), WANDB_MODE=offline to upload later with wandb sync, and WANDB_DIR for the files; default of the
    latter: the folder of the reports"""
    l0_target: int | None = Field(None, ge=1)
    """target number of active terms per document; the run is stopped if it is ten times as high at the end of the
    ramps"""
    patience: int = Field(50, ge=1)
    """consecutive reports of a collapse before the run is stopped"""

    @field_validator("wandb")
    def _is_no_key(cls, project: str | None) -> str | None:
        if project is not None and (re.fullmatch(r"[0-9a-f]{40}", project) or project.startswith("wandb_v1_")):
            problem = "it looks like a key, not like a project"
            raise ConfigError("watch.wandb", problem, "set WANDB_API_KEY in the environment")
        return project


class TextBatchSettings(Section):
    """Batch of one step. All numbers are of the global batch, for any number of workers."""

    texts: int = Field(32, ge=1)
    """texts per step, over all workers; packed blocks for adapt_causal"""
    accumulate: int = Field(1, ge=1)
    """number of parts into which a step is split to save memory; the gradient is that of the whole batch"""
    group_by_length: bool = True
    """batch texts of similar length; the order of batches stays random"""

    @field_validator("accumulate")
    def _divides(cls, accumulate: int, info: ValidationInfo) -> int:
        texts = info.data.get("texts", accumulate)
        if texts % accumulate:
            raise ValueError(f"it has to split the {texts} texts of a batch into equal parts")
        return accumulate


class TextValidationSettings(Section):
    """Loss on held-out texts during training."""

    data: TextData
    """held-out texts; kind texts"""
    every: int = Field(1000, ge=1)
    """steps between two validations; the first one is before the first step, the last one after the last step"""
    texts: int | None = Field(None, ge=1)
    """maximum number of texts, from the start; default: all"""


class TrainedStage(Section):
    """Settings that all stages with steps of an optimizer share."""

    stage: str
    """kind of the stage"""
    steps: int | None = Field(None, ge=1)
    """number of steps; give this or epochs"""
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False)
    """number of passes over the data; with a list of data sets, an epoch has as many steps as all of them have batches
    together"""
    optimizer: OptimizerSettings = OptimizerSettings()
    """AdamW and its learning rate"""
    scale: ScaleSettings = ScaleSettings()
    """distribution over workers, precision and memory"""
    watch: WatchSettings = WatchSettings()
    """reports and early stopping; of stages on plain text, l0_target applies to distil_head only"""
    checkpoint_every: int = Field(500, ge=1)
    """steps between two checkpoints"""
    dropout: float | None = Field(None, ge=0, lt=1)
    """dropout of the model; default: from its config"""
    seed: int = Field(0, ge=0)
    """seed of order, dropout, masks and sampled negatives"""

    def _problems(self) -> Problems:
        if (self.steps is None) == (self.epochs is None):
            yield "give steps or epochs, one of the two"


class LanguageSettings(TrainedStage):
    """Settings that all stages on plain text share."""

    data: TextData
    """training texts; kind texts"""
    batch: TextBatchSettings = TextBatchSettings()
    """batch of one step"""
    max_length: int | None = Field(None, ge=3)
    """maximum tokens of a text, special tokens included; default: the document length of the encoder card"""
    trained: Literal["all", "embeddings", "head"] = "all"
    """weights to train. embeddings: token embeddings, output matrix and its bias; head: everything after the
    transformer, for models whose output matrix is not tied to the embeddings; all other weights are frozen"""
    validation: TextValidationSettings | None = None
    """loss on held-out texts"""

    def _problems(self) -> Problems:
        yield from super()._problems()
        if self.scale.lora is not None and self.trained != "all":
            yield "scale.lora updates the transformer; it needs trained: all"


class AdaptMlmSettings(LanguageSettings):
    """Masked language modeling, mainly after a vocabulary transfer (vocabulary-transfer, 4.2.3)."""

    stage: Literal["adapt_mlm"]
    """kind of the stage"""
    trained: Literal["all", "embeddings", "head"] = "embeddings"
    """weights to train; embeddings: as in the paper"""
    mask_rate: float = Field(0.3, gt=0, lt=1)
    """expected share of the tokens of a text that is masked"""
    new_token_weight: float = Field(2.0, ge=1, allow_inf_nan=False)
    """new tokens are masked this many times as often as tokens of the old vocabulary; 1: equally often"""
    reference: Location | None = Field(None, min_length=1)
    """tokenizer.json of the old vocabulary, or its folder or URI: tokens that are not in it are new; default: the
    vocabulary that the model was transferred from"""


class PretrainEmlmSettings(LanguageSettings):
    """Masked words of an expanded output vocabulary (esplade-pretraining, B.2)."""

    stage: Literal["pretrain_emlm"]
    """kind of the stage"""
    mask_share: float = Field(0.15, gt=0, lt=1)
    """share of a text's words that is masked; one at least"""
    labelled: Literal["all", "first"] = "all"
    """which sub-tokens of a masked word have to predict it: all, or the first one only"""


class AdaptCausalSettings(LanguageSettings):
    """Next-token prediction that adapts a causal model to the activation of sparse vectors (csplade, 3.2)."""

    stage: Literal["adapt_causal"]
    """kind of the stage"""
    relu_weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """weight of the loss on log(1 + relu(logits)); 0: plain language modeling"""


class DistilHeadSettings(LanguageSettings):
    """Distillation of the sparse vectors of a teacher into the head (vocabulary-transfer, 6.3, SAP)."""

    stage: Literal["distil_head"]
    """kind of the stage"""
    trained: Literal["all", "embeddings", "head"] = "head"
    """weights to train; head: the transformer is frozen (ours: the paper names the method and does not say what it
    trains)"""
    teacher: Location = Field(min_length=1)
    """folder or URI of an encoder with the same output vocabulary; its tokenizer may differ"""
    loss: Literal["mse", "cosine"] = "mse"
    """mse: squared differences summed over terms; cosine: one minus the cosine"""
