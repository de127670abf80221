"""Settings of the export of a model, and of the stages that change its card, vocabulary or head without training."""

from typing import Literal

from pydantic import Field

from lsr_prod.config.section import Location, Problems, Section, TextData, TrainingDataSettings


class ExportSettings(Section):
    """Export of a model as an ONNX bundle."""

    model: Location = Field(min_length=1)
    """folder or URI of a model directory, or a Hugging Face id"""
    output: Location = Field(min_length=1)
    """folder or URI of the bundle; must not exist, or hold the same bundle"""
    precision: Literal["fp32", "fp16", "int8"] = "fp32"
    """number format of the weights; use fp16 on GPUs and int8 on CPUs"""
    top_k: int = Field(512, ge=1)
    """maximum terms of a vector (TopK in the graph)"""
    parity_texts: Location | None = None
    """JSONL file or URI with a field text for the parity check; default: built-in sentences"""
    probe_texts: Location | None = None
    """JSONL file or URI with a field text: terms that no text activates are removed from the graph; default: keep all
    terms"""
    min_overlap: float = Field(0.999, ge=0, le=1)
    """parity check: minimum mean top-k overlap with torch, fp32"""
    fp16_min_overlap: float = Field(0.98, ge=0, le=1)
    """parity check: minimum mean top-k overlap with torch, fp16"""
    int8_min_overlap: float = Field(0.9, ge=0, le=1)
    """parity check: minimum mean top-k overlap with torch, int8"""


class AdaptEncoderSettings(Section):
    """Fields of the encoder card to change; other fields keep their values."""

    stage: Literal["set_encoder"]
    """kind of the stage"""
    attention: Literal["bidirectional", "causal", "echo"] | None = None
    """attention of a decoder. bidirectional: each token attends to all tokens; causal: to the tokens before it; echo:
    causal, with the text repeated and only the second copy pooled (csplade, 4)"""
    pooled_states: Literal["tokens", "mean"] | None = None
    """mean: average the hidden states before the vocabulary head (esplade-pretraining, J.1)"""
    activation: Literal["log1p_relu", "l0"] | None = None
    """l0: apply the logarithm twice"""
    pooled_tokens: Literal["all", "not_bos", "appended"] | None = None
    """not_bos: leave out the first token, as decoders do; appended: read only the tokens that appended_tokens adds
    after the text, each with a head for a part of the vocabulary (UEmbed, arXiv 2608.02583)"""
    appended_tokens: int | None = Field(None, ge=1)
    """number of EOS tokens that follow the text, for pooled_tokens: appended"""
    casing: Literal["lowercase"] | None = None
    """lowercase: lowercase texts before tokenizing (casing, 3)"""
    output_casing: Literal["all", "uncased"] | None = None
    """uncased: drop cased terms; a cased term without a lowercase form is renamed to it (casing, 3)"""
    query_encoder: Literal["model", "idf", "learned"] | None = None
    """idf: inference-free queries; query terms are weighted by inverse document frequencies of the index (arXiv
    2411.04403), which then needs stored text fields; learned: by a table that finetune trains (arXiv 2505.01452)"""
    query_max_length: int | None = Field(None, ge=2)
    """maximum tokens of a query, special tokens included"""
    document_max_length: int | None = Field(None, ge=2)
    """maximum tokens of a document, special tokens included"""
    query_prompt: str | None = None
    """text put before every query"""
    document_prompt: str | None = None
    """text put before every document"""

    def _problems(self) -> Problems:
        if not self.changes():
            yield "set_encoder without a field changes nothing; set a field or remove the stage"

    def changes(self) -> dict[str, str | int]:
        """Return the fields that are set."""
        values: dict[str, str | int] = self.model_dump(exclude={"stage"}, exclude_none=True)
        return values


class DomainTokenizerSettings(Section):
    """Lowercase tokenizer without accents, trained on texts of a domain (vocabulary-transfer, 6.6)."""

    data: TextData
    """the texts; kind texts"""
    model: Literal["word_piece", "bpe"] = "bpe"
    """bpe: byte-level, as in the paper"""
    size: int = Field(30_000, ge=300)
    """number of tokens, special tokens included; the paper uses 10k to 50k"""
    min_count: int = Field(2, ge=1)
    """minimum occurrences of a pair of pieces that is merged"""


class TransferVocabularySettings(Section):
    """Transfer of a model to another vocabulary (vocabulary-transfer, 4.2.1 and 4.2.2)."""

    stage: Literal["transfer_vocabulary"]
    """kind of the stage"""
    target: Location | None = Field(None, min_length=1)
    """folder or URI of a model or tokenizer, or a tokenizer.json; give this or train_tokenizer"""
    train_tokenizer: DomainTokenizerSettings | None = None
    """train the tokenizer of the target vocabulary on texts"""
    parts: Literal["all", "head"] = "all"
    """all: replace input and output; head: replace the output terms only, and keep the tokenizer"""
    initialization: Literal["semantic", "subtoken", "mean", "random_new", "random_all"]
    """rows of new tokens. semantic: weighted sum of the rows of similar tokens in target_embeddings, by sparsemax;
    subtoken: mean of the sub-tokens in the source; mean: mean of the rows of shared tokens; random_new: random;
    random_all: random, for shared tokens too"""
    target_embeddings: Location | None = Field(None, min_length=1)
    """folder or URI of a model with the tokens of the target; needs no head; default: target"""
    bias: Literal["target", "unigrams", "rows", "none"] = "target"
    """bias of the head. target: that of target_embeddings, scaled to the source (eq. 10); unigrams: log counts of the
    target tokens in the texts of unigrams (ours), scaled to the source if it has a bias; rows: combined as the rows are
    (ours); none: no bias, for a source without one"""
    unigrams: TextData | None = None
    """texts for the token counts of bias unigrams, and for the number of tokens per word; default: those of
    train_tokenizer"""
    unigram_texts: int = Field(100_000, ge=1)
    """bias unigrams: number of texts to read from the start"""
    seed: int = Field(0, ge=0)
    """seed of random rows"""

    def _problems(self) -> Problems:
        if (self.target is None) == (self.train_tokenizer is None):
            yield "give either target or train_tokenizer"
        if self.train_tokenizer is not None and self.initialization == "semantic":
            yield "no model has embeddings for a tokenizer that is trained here; use initialization subtoken"
        if self.train_tokenizer is not None and self.bias == "target":
            yield "a tokenizer that is trained here has no bias; use bias unigrams"
        if self.bias == "unigrams" and self.unigrams is None and self.train_tokenizer is None:
            yield "bias unigrams counts tokens in texts; give unigrams"
        if self.bias == "rows" and self.initialization.startswith("random"):
            yield "random rows give no bias; use another bias"
        embedded = self.initialization == "semantic" or self.bias == "target"
        yield from self._unread("target_embeddings", need="initialization semantic or bias target", met=embedded)
        yield from self._unread("unigram_texts", need="bias unigrams", met=self.bias == "unigrams")


class ExpandVocabularySettings(Section):
    """Output vocabulary of the most frequent words of a corpus (esplade-pretraining, B.1)."""

    stage: Literal["expand_vocabulary"]
    """kind of the stage"""
    data: TextData
    """the corpus; kind texts"""
    size: int = Field(100_000, ge=1)
    """maximum number of words"""
    min_count: int = Field(2, ge=1)
    """minimum occurrences of a word"""
    initialization: Literal["subtoken", "random"] = "subtoken"
    """rows of words. subtoken: mean of the sub-tokens of a word; random: random rows, the baseline rand-vocab (G)"""
    seed: int = Field(0, ge=0)
    """seed of random rows"""


class CalibrateSettings(Section):
    """Activation potential calibration: subtract a constant from the bias of the head (vocabulary-transfer, 4.2.3)."""

    stage: Literal["calibrate"]
    """kind of the stage"""
    shift: float | None = Field(None, allow_inf_nan=False)
    """the constant c (5 in the paper); give this or activation_rate"""
    negative_shift: Literal["refuse", "zero", "allow"] = "refuse"
    """if c is negative, because the model activates less than activation_rate already: c would raise every bias, and
    the paper only lowers them. refuse: end with an error; zero: change no bias, with a warning; allow: raise them
    (ours)"""
    activation_rate: float | None = Field(None, gt=0, lt=1)
    """choose the constant so that this share of (text, term) pairs has a weight above 0 on data; 0.3 to 0.5 works best
    in the paper"""
    per: Literal["vocabulary", "term"] = "vocabulary"
    """vocabulary: one constant for all terms, as in the paper; term: a constant per term, as many standard deviations
    above the mean of its logits for every term, for a decoder whose outputs are positive in every text (ours)"""
    data: TextData | None = None
    """texts to measure activation_rate on; kind texts"""
    texts: int = Field(512, ge=8)
    """number of texts to measure, spread over data; every second one is held out"""
    max_length: int | None = Field(None, ge=3)
    """maximum tokens of a text; use that of training; default: the document length of the encoder card"""

    def _problems(self) -> Problems:
        if (self.shift is None) == (self.activation_rate is None):
            yield "give either shift or activation_rate"
        if (self.activation_rate is None) != (self.data is None):
            yield "activation_rate is measured on data; give both or neither"
        yield from self._unread("texts", "max_length", need="activation_rate", met=self.activation_rate is not None)
        if self.per == "term" and (self.activation_rate is None or self.negative_shift != "refuse"):
            yield "per term needs activation_rate, and raises biases where terms need it: no negative_shift"
        if self.shift is not None and self.shift < 0 and self.negative_shift != "allow":
            yield "a negative shift raises every bias; give 0 or more, or set negative_shift to allow"


class RescaleHeadSettings(Section):
    """Division of the output matrix by a constant before training (head-rescaling, eq. 6)."""

    stage: Literal["rescale_head"]
    """kind of the stage"""
    alpha: float | Literal["auto"]
    """the constant; the paper tries 1, 2, 4, 8 and 16. auto (ours): the smallest of these that keeps sample pairs
    within max_score and max_weight"""
    data: TrainingDataSettings | None = None
    """auto: rows with a query and a positive; kind pairs, triples, negatives or scores"""
    pairs: int = Field(128, ge=8)
    """auto: number of rows to measure, spread over data"""
    max_score: float = Field(100.0, gt=0, allow_inf_nan=False)
    """auto: maximum mean score of a query and its positive (ours)"""
    max_weight: float = Field(3.0, gt=0, allow_inf_nan=False)
    """auto: maximum of the mean largest weight per text (ours)"""

    def _problems(self) -> Problems:
        if isinstance(self.alpha, float) and not 0 < self.alpha < float("inf"):
            yield "alpha has to be a number above 0, or auto"
        if (self.alpha == "auto") != (self.data is not None):
            yield "data is read by auto only; give both or neither"
        yield from self._unread("pairs", "max_score", "max_weight", need="alpha auto", met=self.alpha == "auto")
        if self.data is not None and self.data.kind == "texts":
            yield "auto scores queries against their positives; data.kind cannot be texts"


VocabularySettings = TransferVocabularySettings | ExpandVocabularySettings | CalibrateSettings | RescaleHeadSettings
"""The settings of a stage that changes the output vocabulary, its head or its scale."""
