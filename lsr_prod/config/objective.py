"""Settings of the training objective: ranking losses, regularizers, pruning-aware and threshold-aware terms."""

from typing import Literal

from pydantic import Field, field_validator

from lsr_prod.config.section import Problems, Section

_RAMP_SHARE = 0.33


class LossSettings(Section):
    """One ranking loss."""

    loss: Literal["info_nce", "n_pair", "margin_mse", "kl"]
    """info_nce: cross entropy of the positive among all documents of the batch; n_pair: the same without temperature or
    hard negatives; margin_mse and kl: distillation from a teacher's scores"""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """weight of this loss in the sum"""
    similarity: Literal["dot", "cosine", "both"] = "dot"
    """both: sum of the losses with either similarity"""
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    """scores are divided by this"""
    cosine_temperature: float = Field(0.05, gt=0, allow_inf_nan=False)
    """temperature of cosine similarities"""
    margin: float = Field(0.0, ge=0, allow_inf_nan=False)
    """info_nce: margin subtracted from the score of the positive"""
    in_batch: bool = True
    """info_nce: also use the documents of other queries as negatives"""

    def _problems(self) -> Problems:
        if self.loss == "margin_mse" and self.similarity != "dot":
            yield "margin_mse supports similarity dot only"
        if self.loss == "margin_mse" and self.temperature != 1:
            yield "margin_mse compares scores without temperature; use kl"
        if self.loss == "n_pair" and (self.temperature != 1 or not self.in_batch):
            yield "n_pair has neither temperature nor a choice of negatives; use info_nce"
        if self.margin and self.loss != "info_nce":
            yield "only info_nce has a margin"


class QueueSettings(Section):
    """Documents of earlier steps as negatives of info_nce, encoded by a momentum copy of the model (MoCo)."""

    size: int = Field(4096, ge=1)
    """documents in the queue"""
    momentum: float = Field(0.999, ge=0, lt=1)
    """momentum of the copy: share of its weights that is kept per step"""
    terms: int = Field(512, ge=1)
    """terms kept per document in the queue, heaviest first"""


class RegularizerSettings(Section):
    """One regularizer; its means are over the global batch."""

    regularizer: Literal["flops", "joint_flops", "l1", "df_flops", "cased"]
    """flops: sum of squared mean weights; joint_flops: mean query . mean document; l1: mean sum of weights; df_flops:
    flops with terms weighted by document frequency; cased: mean sum of squared weights of cased terms"""
    query: float = Field(0.0, ge=0, allow_inf_nan=False)
    """weight for queries"""
    document: float = Field(0.0, ge=0, allow_inf_nan=False)
    """weight for documents"""
    joint: float = Field(0.0, ge=0, allow_inf_nan=False)
    """weight of joint_flops"""
    estimator: Literal["all_pairs", "off_diagonal"] = "all_pairs"
    """joint_flops: pairs of a query and a document over which the mean product is taken. all_pairs: mean query . mean
    document, which contains each query's own positive; off_diagonal: all pairs except a query with its own positive, so
    that a weight suits every batch size"""
    ramp: Literal["none", "linear", "quadratic"] = "none"
    """schedule by which the weights grow from 0, over ramp_steps or ramp_share; none: full from the first step"""
    ramp_share: float = Field(_RAMP_SHARE, gt=0, le=1)
    """share of the steps over which the weights grow; needs ramp"""
    ramp_steps: int | None = Field(None, ge=1)
    """number of steps over which the weights grow; replaces ramp_share; needs ramp"""
    l0_mask: int | None = Field(None, ge=0)
    """flops, l1: include only texts with more active terms than this; the mean is still over all texts"""
    df_alpha: float = Field(0.1, gt=0, lt=1)
    """df_flops: document frequency (share of documents) at which the weight of a term is one half"""
    df_beta: float = Field(10.0, gt=0)
    """df_flops: steepness of the weight at df_alpha"""
    df_every: int = Field(100, ge=1)
    """df_flops: steps between two updates of the document frequencies"""

    def _problems(self) -> Problems:
        joint = self.regularizer == "joint_flops"
        if joint and (self.query or self.document or not self.joint):
            yield "joint_flops has one weight, joint"
        if not joint and (self.joint or not (self.query or self.document)):
            yield f"{self.regularizer} needs query or document above 0, and has no weight joint"
        if self.l0_mask is not None and self.regularizer not in ("flops", "l1"):
            yield "only flops and l1 have l0_mask"
        if not joint and self.estimator != "all_pairs":
            yield "only joint_flops has a choice of estimator"
        if self.ramp == "none" and (self.ramp_steps is not None or self.ramp_share != _RAMP_SHARE):
            yield "ramp_steps and ramp_share need a ramp; set ramp to linear or quadratic"


class SparsitySettings(Section):
    """Regularizers and masks that keep vectors sparse."""

    regularizers: list[RegularizerSettings] = Field([])
    """regularizers, added to the loss"""
    keep_query: int | None = Field(None, ge=1)
    """terms of a query that training keeps, heaviest first (q_K)"""
    keep_document: int | None = Field(None, ge=1)
    """terms of a document that training keeps, heaviest first (d_K)"""
    keep: Literal["masked", "both"] = "masked"
    """masked: loss of the masked vectors; both: plus the loss of the complete vectors"""


class PruningSettings(Section):
    """Additional ranking losses on vectors that are pruned as in serving."""

    levels: list[tuple[int, int]] = Field([(5, 10)], min_length=1)
    """pairs [qk, dk]: terms kept of a query and of a document, heaviest first; 0: all"""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """weight of the mean of these losses"""
    gradient: Literal["hard", "straight_through"] = "hard"
    """terms that the gradient reaches. hard: the kept terms; straight_through: also the next ones by weight, times
    sigmoid((weight - k-th weight) / temperature), so that they can replace kept terms"""
    temperature_start: float = Field(0.2, gt=0, allow_inf_nan=False)
    """straight_through: temperature at the first step, in term weights"""
    temperature_end: float = Field(0.05, gt=0, allow_inf_nan=False)
    """straight_through: temperature at the last step; it changes by a constant factor per step"""
    candidates: int = Field(4, ge=2)
    """straight_through: terms with a gradient, as a multiple of qk and dk, heaviest first"""

    @field_validator("levels")
    def _not_negative(cls, levels: list[tuple[int, int]]) -> list[tuple[int, int]]:
        if any(min(level) < 0 for level in levels):
            raise ValueError("numbers of terms have to be 0 (all) or more")
        return levels


class OverlapSettings(Section):
    """Loss term that makes queries share enough terms with their positives for the overlap threshold."""

    term: Literal["co_occurrence", "jaccard"] = "co_occurrence"
    """co_occurrence: hinge loss on the soft share of query terms in the positive; jaccard: one minus the soft Jaccard
    similarity of query and positive"""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """weight of this term"""
    overlap_threshold: float = Field(0.6, gt=0, le=1)
    """target share of the query terms"""
    softness: float = Field(0.2, gt=0, allow_inf_nan=False)
    """a term of weight w counts as w / (w + softness)"""
    qk: int = Field(0, ge=0)
    """terms of the query to compare, heaviest first; 0: all"""
    dk: int = Field(0, ge=0)
    """terms of the document to compare, heaviest first; 0: all"""


class ObjectiveSettings(Section):
    """The training objective: the sum of these terms."""

    losses: list[LossSettings] = Field(min_length=1)
    """ranking losses, added up"""
    cross_worker: bool = True
    """use the documents of all workers as negatives, not only those of the same worker"""
    mask_false_negatives: bool = True
    """info_nce, n_pair: exclude documents from the negatives of a query that equal its positive or a positive that any
    row of the training set gives the same query"""
    queue: QueueSettings | None = None
    """queue of documents of earlier steps as negatives of info_nce"""
    sparsity: SparsitySettings = SparsitySettings()
    """regularizers and training masks"""
    pruning: PruningSettings | None = None
    """pruning-aware training"""
    overlap: OverlapSettings | None = None
    """threshold-aware training"""

    @field_validator("queue")
    def _used(cls, queue: QueueSettings | None, info: object) -> QueueSettings | None:
        losses = getattr(info, "data", {}).get("losses", [])
        if queue is not None and not any(loss.loss == "info_nce" and loss.in_batch for loss in losses):
            raise ValueError("only info_nce with in_batch uses negatives of a queue")
        return queue


class QueryWeightsSettings(Section):
    """Training of the weights of query terms, for models with query_encoder learned."""

    initialization: Literal["idf", "ones"] = "idf"
    """weights that training starts from: inverse document frequencies of idf_corpus or of the documents of data, or 1
    for every term; a model with trained weights continues with them"""
    learning_rate_factor: float = Field(100.0, ge=0, allow_inf_nan=False)
    """learning rate of the weights, as a multiple of optimizer.learning_rate: a weight is a number of about 1 to 10,
    and a step of AdamW changes it by about the learning rate; 0 keeps them"""
