"""Settings of the training objective: ranking losses, regularizers, pruning-aware and threshold-aware terms."""

from typing import Annotated, Literal

from pydantic import Field

from lsr_prod.config.section import Problems, Section

TermCount = Annotated[int, Field(ge=0)]


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
    """info_nce, kl: dot products are divided by this, and the scores of the teacher of kl"""
    cosine_temperature: float = Field(0.05, gt=0, allow_inf_nan=False)
    """cosine similarities are divided by this"""
    margin: float = Field(0.0, ge=0, allow_inf_nan=False)
    """info_nce: margin subtracted from the score of the positive"""
    in_batch: bool = True
    """info_nce: also use the documents of other queries as negatives"""

    def _problems(self) -> Problems:
        if self.loss == "margin_mse" and self.similarity != "dot":
            yield "margin_mse supports similarity dot only"
        contrasts = self.loss == "info_nce"
        yield from self._unread("margin", "in_batch", need="info_nce", met=contrasts)
        divides = self.loss == "kl" or (contrasts and self.similarity != "cosine")
        yield from self._unread("temperature", need="kl, or info_nce with similarity dot or both", met=divides)
        yield from self._unread("cosine_temperature", need="similarity cosine or both", met=self.similarity != "dot")


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
    ramp_share: float = Field(0.33, gt=0, le=1)
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
        yield from self._unread("l0_mask", need="flops or l1", met=self.regularizer in ("flops", "l1"))
        yield from self._unread("estimator", need="joint_flops", met=joint)
        yield from self._unread("ramp_steps", "ramp_share", need="ramp linear or quadratic", met=self.ramp != "none")
        yield from self._unread("df_alpha", "df_beta", "df_every", need="df_flops", met=self.regularizer == "df_flops")


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

    def _problems(self) -> Problems:
        masks = self.keep_query is not None or self.keep_document is not None
        yield from self._unread("keep", need="keep_query or keep_document", met=masks)


class PruningSettings(Section):
    """Additional ranking losses on vectors that are pruned as in serving."""

    levels: list[tuple[TermCount, TermCount]] = Field([(5, 10)], min_length=1)
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

    def _problems(self) -> Problems:
        names = ("temperature_start", "temperature_end", "candidates")
        yield from self._unread(*names, need="gradient straight_through", met=self.gradient == "straight_through")


class OverlapSettings(Section):
    """Loss term that makes queries share enough terms with their positives for the overlap threshold."""

    term: Literal["co_occurrence", "jaccard"] = "co_occurrence"
    """co_occurrence: hinge loss on the soft share of query terms in the positive; jaccard: one minus the soft Jaccard
    similarity of query and positive"""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """weight of this term"""
    overlap_threshold: float = Field(0.6, gt=0, le=1)
    """co_occurrence: target share of the query terms"""
    softness: float = Field(0.2, gt=0, allow_inf_nan=False)
    """a term of weight w counts as w / (w + softness)"""
    qk: TermCount = 0
    """terms of the query to compare, heaviest first; 0: all"""
    dk: TermCount = 0
    """terms of the document to compare, heaviest first; 0: all"""

    def _problems(self) -> Problems:
        yield from self._unread("overlap_threshold", need="term co_occurrence", met=self.term == "co_occurrence")


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

    def _problems(self) -> Problems:
        of_batch = {loss.loss for loss in self.losses if loss.in_batch} & {"info_nce", "n_pair"}
        yield from self._unread("queue", need="info_nce with in_batch", met="info_nce" in of_batch)
        yield from self._unread("cross_worker", need="info_nce with in_batch, or n_pair", met=bool(of_batch))
        contrasts = any(loss.loss in ("info_nce", "n_pair") for loss in self.losses)
        yield from self._unread("mask_false_negatives", need="info_nce or n_pair", met=contrasts)


class QueryWeightsSettings(Section):
    """Training of the weights of query terms, for models with query_encoder learned."""

    initialization: Literal["idf", "ones"] = "idf"
    """weights that training starts from: inverse document frequencies of idf_corpus or of the documents of data, or 1
    for every term; a model with trained weights continues with them"""
    learning_rate_factor: float = Field(100.0, ge=0, allow_inf_nan=False)
    """learning rate of the weights, as a multiple of optimizer.learning_rate: a weight is a number of about 1 to 10,
    and a step of AdamW changes it by about the learning rate; 0 keeps them"""
