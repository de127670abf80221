"""Settings of hard negative mining."""

from typing import Literal

from pydantic import Field

from lsr_prod.config.section import LocalPath, Location, Problems, Section, SourceLocation, TrainingDataSettings

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

    kind: Literal["cross_encoder", "dense", "sparse"] = "cross_encoder"
    """cross_encoder: a sequence classification model of Hugging Face, or a CrossEncoder of sentence-transformers, that
    reads query and document together; dense: an encoder of either, scores are dot products; sparse: a model directory
    or a bundle of lsr_prod, or a SparseEncoder of sentence-transformers"""
    model: Location = Field(min_length=1)
    """folder or URI of the model, or a Hugging Face id; read from safetensors"""
    max_length: int | None = Field(None, ge=4)
    """cross_encoder: maximum tokens of query and document together, the longer one is cut; dense: maximum tokens of a
    text; default: the maximum of the model"""
    label: int | None = Field(None, ge=0, le=1)
    """cross_encoder with two outputs: number of the relevant one; default: 1"""
    pooling: Literal["mean", "cls"] | None = None
    """dense: mean of the hidden states, or that of the first token; default: of the sentence-transformers folder;
    required for other folders"""
    normalize: bool | None = None
    """dense: divide vectors by their length, so that scores are cosines; default: of the sentence-transformers folder,
    else false"""
    query_prompt: str | None = None
    """dense: text put before every query; default: of the sentence-transformers folder"""
    document_prompt: str | None = None
    """dense: text put before every document; default: of the sentence-transformers folder"""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """number format of the weights; a bundle has its own, and fp16 needs a GPU"""
    activation: Literal["none", "sigmoid"] = "none"
    """cross_encoder: none: scores are the raw logits; sigmoid: scores from 0 to 1"""
    scale: float = Field(1.0, gt=0, allow_inf_nan=False)
    """factor of all scores; cosines (-1 to 1) need one of 10 to 50 to be margins of dot products"""

    def _problems(self) -> Problems:
        for name, kinds in _ONLY.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                yield f"{name} is a setting of kind {' or '.join(kinds)}; kind is {self.kind}: remove it"
        if self.activation != "none" and self.kind != "cross_encoder":
            yield f"dot products have no activation {self.activation}; set it to none, or use scale"


class ScoreSettings(Section):
    """Scores of a teacher for training rows, for distillation."""

    data: TrainingDataSettings
    """training rows of kind pairs, triples or negatives"""
    teacher: TeacherModelSettings
    """the model that scores"""
    output: Location = Field(min_length=1)
    """folder or URI of the rows of kind scores (Parquet); used by this job only"""
    batch_tokens: int = Field(4096, ge=1)
    """tokens per forward pass, padding included; a GPU needs many more"""
    use_gpu: bool = False
    """one GPU per actor"""
    slice_kilobytes: int = Field(1000, ge=1)
    """source bytes per task, which writes one part, kB"""
    actors: int | None = Field(None, ge=1)
    """number of worker processes; default: one per threads_per_actor cores, or per GPU"""
    threads_per_actor: int = Field(1, ge=1)
    """threads of an actor"""

    def _problems(self) -> Problems:
        if self.data.kind not in ("pairs", "triples", "negatives"):
            yield "query and documents are read; data.kind has to be pairs, triples or negatives"
        if self.teacher.precision == "fp16" and not self.use_gpu:
            yield "teacher.precision fp16 needs use_gpu; use fp32 on CPUs"


class TeacherScoresSettings(Section):
    """Scores of a stronger ranker, used to detect false negatives: read from files, or given by a model."""

    paths: list[SourceLocation] = Field([])
    """JSONL files, folders, globs or URIs: query (text) or query_id, doc_id, score; or give model"""
    model: TeacherModelSettings | None = None
    """model that scores the positive and all hits of a query; or give paths"""
    batch_tokens: int = Field(4096, ge=1)
    """model: tokens per forward pass, padding included; a GPU needs many more"""
    use_gpu: bool = False
    """model: one GPU per actor"""
    key: Literal["query", "query_id"] = "query"
    """field that identifies the query in these files; query_id needs mine.query_id"""
    unscored: Literal["drop", "keep"] = "drop"
    """candidates without a score: drop them, as they may be relevant, or keep them"""


class MineSettings(Section):
    """Hard negatives for training pairs, searched in a published index."""

    data: TrainingDataSettings
    """training pairs of kind pairs, triples or negatives; query and positive are read"""
    positive_id: str | None = Field(None, min_length=1)
    """column with the document id of the positive in the index; the text may then be absent"""
    query_id: str | None = Field(None, min_length=1)
    """column with the id of the query, to look up teacher scores"""
    index: Location = Field(min_length=1)
    """folder or URI of the index; queries are encoded with its bundle"""
    cache: LocalPath | None = None
    """folder on a local disk that caches a remote index; default: the node cache"""
    text_fields: list[str] = Field(["title", "text"], min_length=1)
    """stored fields of the index that are joined into the text of a document"""
    separator: str = " "
    """text between two text fields"""
    output: Location = Field(min_length=1)
    """folder or URI of the rows (Parquet); used by this job only"""
    depth: int = Field(100, ge=1, le=10_000)
    """hits per query to consider"""
    skip: int = Field(0, ge=0)
    """first hits to skip: the most likely false negatives"""
    negatives: int = Field(8, ge=1)
    """maximum negatives per row"""
    at_least: int = Field(1, ge=1)
    """minimum negatives per row; rows with fewer are quarantined as too_few_negatives"""
    sample: Literal["top", "random"] = "top"
    """top: candidates with the highest scores; random: a random sample"""
    seed: int = Field(0, ge=0)
    """random seed of sample random"""
    margin_ratio: float | None = Field(None, gt=0, le=1)
    """drop candidates that score at least this share of the score of the positive, as false negatives (0.95 is common);
    default: drop none"""
    margin: float | None = Field(None, ge=0, allow_inf_nan=False)
    """drop candidates that score at least the score of the positive minus this margin; default: drop none"""
    own_share: float = Field(0.6, gt=0, le=1)
    """drop candidates whose text shares at least this part of the shingles (three words each) of the shorter text with
    a positive of the query: they hold it, are a part of it or nearly repeat it"""
    max_suspicious: float = Field(0.05, ge=0, le=1)
    """maximum share of negatives with nearly the same words as the positive of their row, in any order, or with a part
    of them; above it, the rows are refused"""
    teacher: TeacherScoresSettings | None = None
    """scores that margin and margin_ratio compare; default: those of the index"""
    scores: bool = False
    """also write documents (the positive first) and scores, for kind scores: of the teacher, else of the index"""
    batch: int = Field(64, ge=1)
    """queries that are encoded and searched together"""
    slice_kilobytes: int = Field(256, ge=1)
    """source bytes per task, which writes one part, kB"""
    actors: int | None = Field(None, ge=1)
    """number of worker processes; default: one per threads_per_actor cores"""
    threads_per_actor: int = Field(1, ge=1)
    """ONNX Runtime threads of an actor"""

    def _problems(self) -> Problems:
        if self.data.kind not in ("pairs", "triples", "negatives"):
            yield "query and positive are read; data.kind has to be pairs, triples or negatives"
        if self.skip + self.negatives > self.depth:
            yield (
                f"{self.negatives} negatives after the first {self.skip} hits need a depth of "
                f"{self.skip + self.negatives} or more, not {self.depth}"
            )
        if self.at_least > self.negatives:
            yield f"at_least {self.at_least} is more than negatives {self.negatives}"
        if self.teacher is None:
            return
        if bool(self.teacher.paths) == (self.teacher.model is not None):
            yield "a teacher is files with scores or a model; give either teacher.paths or teacher.model"
        if self.teacher.model is not None and self.teacher.model.precision == "fp16" and not self.teacher.use_gpu:
            yield "teacher.model.precision fp16 needs teacher.use_gpu; use fp32 on CPUs"
        if self.teacher.model is not None and self.teacher.key == "query_id":
            yield "a model reads the text of a query; let teacher.key be query"
        if self.margin is None and self.margin_ratio is None and not self.scores:
            yield "a teacher's scores are read for margin, margin_ratio or scores; set one of them"
        if self.teacher.key == "query_id" and self.query_id is None:
            yield "name the column of the query's id in mine.query_id, or let teacher.key be query"
        if self.teacher.unscored == "keep" and self.scores:
            yield "a row with scores needs one of every document; let teacher.unscored be drop"
