"""Settings of the job that scores training rows with a teacher, and of the teacher."""

from typing import Literal

from pydantic import Field, model_validator

from lsr_prod.config.location import Location
from lsr_prod.config.section import Section
from lsr_prod.config.training_data import TrainingDataSettings

_ONLY = {  # settings of some kinds of teachers only
    "max_length": ("cross_encoder", "dense"),
    "label": ("cross_encoder",),
    "pooling": ("dense",),
    "normalize": ("dense",),
    "query_prompt": ("dense",),
    "document_prompt": ("dense",),
}


class TeacherModelSettings(Section):
    """A model that scores a document for a query."""

    kind: Literal["cross_encoder", "dense", "sparse"] = Field(
        "cross_encoder",
        description="cross_encoder: a sequence classification model of Hugging Face, or a CrossEncoder of "
        "sentence-transformers, that reads query and document together; dense: an encoder of either, scores are dot "
        "products; sparse: a model directory or a bundle of lsr_prod, or a SparseEncoder of sentence-transformers",
    )
    model: Location = Field(
        min_length=1, description="folder or URI of the model, or a Hugging Face id; read from safetensors"
    )
    max_length: int | None = Field(
        None,
        ge=4,
        description="cross_encoder: maximum tokens of query and document together, the longer one is cut; dense: "
        "maximum tokens of a text; default: the maximum of the model",
    )
    label: int | None = Field(
        None, ge=0, le=1, description="cross_encoder with two outputs: number of the relevant one; default: 1"
    )
    pooling: Literal["mean", "cls"] | None = Field(
        None,
        description="dense: mean of the hidden states, or that of the first token; default: of the "
        "sentence-transformers folder; required for other folders",
    )
    normalize: bool | None = Field(
        None,
        description="dense: divide vectors by their length, so that scores are cosines; default: of the "
        "sentence-transformers folder, else false",
    )
    query_prompt: str | None = Field(
        None, description="dense: text put before every query; default: of the sentence-transformers folder"
    )
    document_prompt: str | None = Field(
        None, description="dense: text put before every document; default: of the sentence-transformers folder"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="number format of the weights; a bundle has its own, and fp16 needs a GPU"
    )
    activation: Literal["none", "sigmoid"] = Field(
        "none", description="cross_encoder: none: scores are the raw logits; sigmoid: scores from 0 to 1"
    )
    scale: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="factor of all scores; cosines (-1 to 1) need one of 10 to 50 to be margins of dot products",
    )

    @model_validator(mode="after")
    def _of_its_kind(self) -> "TeacherModelSettings":
        for name, kinds in _ONLY.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                raise ValueError(f"{name} is a setting of kind {' or '.join(kinds)}; kind is {self.kind}: remove it")
        if self.activation != "none" and self.kind != "cross_encoder":
            raise ValueError(f"dot products have no activation {self.activation}; set it to none, or use scale")
        return self


class ScoreSettings(Section):
    """Scores of a teacher for training rows, for distillation."""

    data: TrainingDataSettings = Field(description="training rows of kind pairs, triples or negatives")
    teacher: TeacherModelSettings = Field(description="the model that scores")
    output: Location = Field(
        min_length=1, description="folder or URI of the rows of kind scores (Parquet); used by this job only"
    )
    batch_tokens: int = Field(
        4096, ge=1, description="tokens per forward pass, padding included; a GPU needs many more"
    )
    use_gpu: bool = Field(False, description="one GPU per actor")
    slice_kilobytes: int = Field(1000, ge=1, description="source bytes per task, which writes one part, kB")
    actors: int | None = Field(
        None,
        ge=1,
        description="number of worker processes; default: one per threads_per_actor cores, or per GPU",
    )
    threads_per_actor: int = Field(1, ge=1, description="threads of an actor")

    @model_validator(mode="after")
    def _possible(self) -> "ScoreSettings":
        if self.data.kind not in ("pairs", "triples", "negatives"):
            raise ValueError("query and documents are read; data.kind has to be pairs, triples or negatives")
        if self.teacher.precision == "fp16" and not self.use_gpu:
            raise ValueError("teacher.precision fp16 needs use_gpu; use fp32 or bf16 on CPUs")
        return self
