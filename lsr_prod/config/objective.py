"""What a fine-tuning minimises: ranking losses, regularisers, and terms that prepare for pruning and the threshold."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from lsr_prod.config.section import Section

__all__ = [
    "LossSettings",
    "ObjectiveSettings",
    "OverlapSettings",
    "PruningSettings",
    "QueueSettings",
    "RegularizerSettings",
    "SparsitySettings",
]


class LossSettings(Section):
    """One ranking loss."""

    loss: Literal["info_nce", "n_pair", "margin_mse", "kl"] = Field(
        description="info_nce: cross entropy of the positive among all documents of the batch; n_pair: the same "
        "without temperature or hard negatives; margin_mse and kl: distillation from a teacher's scores"
    )
    weight: float = Field(1.0, gt=0, allow_inf_nan=False, description="factor of this loss in the sum")
    similarity: Literal["dot", "cosine", "both"] = Field("dot", description="both: the sum of the loss under each")
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False, description="scores are divided by it")
    cosine_temperature: float = Field(0.05, gt=0, allow_inf_nan=False, description="the same for cosines")
    margin: float = Field(0.0, ge=0, allow_inf_nan=False, description="taken from the positive's score (info_nce)")
    in_batch: bool = Field(True, description="info_nce: documents of other queries are negatives too")

    @model_validator(mode="after")
    def _possible(self) -> "LossSettings":
        if self.loss == "margin_mse" and self.similarity != "dot":
            raise ValueError("a teacher's margins are matched by the dot product only; margin_mse takes dot")
        if self.loss == "margin_mse" and self.temperature != 1:
            raise ValueError("margin_mse matches scores as they are, without temperature; take kl")
        if self.loss == "n_pair" and (self.temperature != 1 or not self.in_batch):
            raise ValueError("n_pair has neither temperature nor a choice of negatives; take info_nce")
        if self.margin and self.loss != "info_nce":
            raise ValueError("an additive margin belongs to info_nce")
        return self


class QueueSettings(Section):
    """Documents of earlier steps as further negatives of info_nce, encoded by a slow copy of the model (MoCo)."""

    size: int = Field(4096, ge=1, description="documents kept")
    momentum: float = Field(0.999, ge=0, lt=1, description="share of the slow copy's weights that stay in a step")
    terms: int = Field(512, ge=1, description="heaviest terms kept of a document in the queue")


class RegularizerSettings(Section):
    """One regulariser; its means are over the global batch."""

    regularizer: Literal["flops", "joint_flops", "l1", "df_flops", "cased"] = Field(
        description="flops: sum of squared mean weights; joint_flops: mean query . mean document; l1: mean sum of "
        "weights; df_flops: flops with each term weighed by its document frequency; cased: squares of cased terms"
    )
    query: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight for queries")
    document: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight for documents")
    joint: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight of joint_flops")
    ramp: Literal["none", "linear", "quadratic"] = Field("quadratic", description="how the weights grow from 0")
    ramp_share: float = Field(0.33, gt=0, le=1, description="share of the steps over which they grow")
    ramp_steps: int | None = Field(None, ge=1, description="steps over which they grow, in place of ramp_share")
    l0_mask: int | None = Field(
        None, ge=0, description="flops, l1: only texts with more active terms than this enter; divided by all texts"
    )
    df_alpha: float = Field(
        0.1, gt=0, lt=1, description="df_flops: document frequency, as a share, at which a term's weight is one half"
    )
    df_beta: float = Field(10.0, gt=0, description="df_flops: how sharply the weight rises there")
    df_every: int = Field(100, ge=1, description="df_flops: steps between two counts of document frequencies")

    @model_validator(mode="after")
    def _weighted(self) -> "RegularizerSettings":
        joint = self.regularizer == "joint_flops"
        if joint and (self.query or self.document or not self.joint):
            raise ValueError("joint_flops has one weight, joint")
        if not joint and (self.joint or not (self.query or self.document)):
            raise ValueError(f"{self.regularizer} has the weights query and document, and one of them above 0")
        if self.l0_mask is not None and self.regularizer not in ("flops", "l1"):
            raise ValueError("l0_mask belongs to flops and l1")
        return self


class SparsitySettings(Section):
    """What keeps vectors sparse."""

    regularizers: list[RegularizerSettings] = Field([], description="all are added to the loss")
    keep_query: int | None = Field(None, ge=1, description="training keeps this many heaviest terms of a query (q_K)")
    keep_document: int | None = Field(None, ge=1, description="the same for a document (d_K)")
    keep: Literal["masked", "both"] = Field(
        "masked", description="both: the loss of the masked vectors is added to that of the whole ones"
    )


class PruningSettings(Section):
    """The ranking losses once more on vectors pruned as serving prunes them."""

    levels: list[tuple[int, int]] = Field(
        [(5, 10)], min_length=1, description="pairs qk, dk: heaviest terms kept of a query and of a document; 0: all"
    )
    weight: float = Field(1.0, gt=0, allow_inf_nan=False, description="factor of their mean")

    @field_validator("levels")
    @classmethod
    def _not_negative(cls, levels: list[tuple[int, int]]) -> list[tuple[int, int]]:
        if any(min(level) < 0 for level in levels):
            raise ValueError("a number of terms is 0 (all) or more")
        return levels


class OverlapSettings(Section):
    """A term that lets queries and their positives share enough terms for the overlap threshold."""

    term: Literal["co_occurrence", "jaccard"] = Field(
        "co_occurrence",
        description="co_occurrence: hinge on the soft share of the query's terms that the positive has; jaccard: one "
        "minus the soft Jaccard similarity of the two",
    )
    weight: float = Field(1.0, gt=0, allow_inf_nan=False, description="factor of the term")
    overlap_threshold: float = Field(0.6, gt=0, le=1, description="share of the query's terms that is aimed at")
    softness: float = Field(
        0.2, gt=0, allow_inf_nan=False, description="a term of weight w counts as w / (w + softness)"
    )
    qk: int = Field(0, ge=0, description="heaviest terms of the query that are looked at; 0: all")
    dk: int = Field(0, ge=0, description="the same of the document")


class ObjectiveSettings(Section):
    """Everything that is added up to the loss."""

    losses: list[LossSettings] = Field(min_length=1, description="all are added")
    cross_worker: bool = Field(True, description="documents of every worker are negatives, not only one's own")
    queue: QueueSettings | None = Field(None, description="documents of earlier steps as negatives of info_nce")
    sparsity: SparsitySettings = Field(SparsitySettings(), description="regularisers and training masks")
    pruning: PruningSettings | None = Field(None, description="pruning-aware training")
    overlap: OverlapSettings | None = Field(None, description="threshold-aware training")

    @field_validator("queue")
    @classmethod
    def _used(cls, queue: QueueSettings | None, info: object) -> QueueSettings | None:
        losses = getattr(info, "data", {}).get("losses", [])
        if queue is not None and not any(loss.loss == "info_nce" and loss.in_batch for loss in losses):
            raise ValueError("only info_nce with in_batch takes negatives of a queue")
        return queue
