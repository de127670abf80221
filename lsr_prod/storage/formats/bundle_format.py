"""The ONNX bundle, an encoder that runs without torch, and the encoder card, which determines its vectors.

Model directories have the card, too, as ``encoder_card.json``. It has no settings of jobs.

::

    <bundle>/
      bundle.json          this manifest; the sha256 of its canonical JSON is the bundle digest
      model.onnx           input_ids, attention_mask[, token_type_ids] -> terms int64 [B, k], weights float32 [B, k]
      tokenizer.json       without prompts and truncation: the runtime applies those of the card
      encoder_card.json    see ``EncoderCard``
      vocabulary.json      list of the V output terms
      query_weights.npy    only with learned query weights, see ``formats.sparse``
      config.json          configuration of the backbone, so that other runtimes can open the folder
      query/               a separate query encoder: the same files except bundle.json, which names them all
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError, FormatVersionError
from lsr_prod.storage.formats.digests import (
    FileDigest,
    digest_folder,
    digest_json,
    read_record,
    record_bytes,
    verify_files,
)

BUNDLE_FILE = "bundle.json"
CARD_FILE = "encoder_card.json"
GRAPH_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "vocabulary.json"
QUERY_FOLDER = "query"
"""Folder of a separate query encoder in a model directory or a bundle, with a card of its own."""

BUNDLE_FORMAT = 1
CARD_FORMAT = 1
LONGEST = 1 << 20
"""Largest maximum length of a text, in tokens; that of a model is less."""
HEADS = {"token_weights": "a head of token weights (BGE-M3)", "autoencoder": "a sparse autoencoder (CSR)"}
"""Names of the heads that are no vocabulary head."""
POSITIONS_AFTER_PADDING = ("camembert", "roberta", "xlm-roberta")
"""Model types whose positions start after the id of the padding token; MPNet's start after 1, whatever that id is."""

Kind = Literal["query", "document"]
Attention = Literal["bidirectional", "causal", "echo"]
PooledTokens = Literal["all", "not_bos", "appended"]
Precision = Literal["fp32", "fp16", "int8"]

# Written only if they differ from the default, which older encoders have: their cards, and so their digests, stay the
# same.
_OPTIONAL = (
    "appended_tokens",
    "attention",
    "pooled_states",
    "output_vocabulary",
    "output_casing",
    "query_encoder",
    "query_special_tokens",
    "head",
    "state_scaling",
    "max_terms",
)


@dataclass(frozen=True, slots=True)
class Cut:
    """Columns of the vocabulary head that are not in the graph."""

    kept: int  # number of terms that the graph can return
    cut: int  # number of terms that it cannot return
    proven: int  # cut terms that no text at all can activate; the other cut terms are inactive in all probe texts
    texts: int  # number of probe texts
    sha256: str  # digest of the probe texts


@dataclass(frozen=True, slots=True)
class QueryGraph:
    """The graph of a separate query encoder."""

    top_k: int  # k of the TopK inside the graph
    inputs: tuple[str, ...]  # names of the inputs of the graph, in order


@dataclass(frozen=True, slots=True)
class Bundle:
    """The manifest of an exported encoder."""

    precision: Precision  # number format of the weights in the graph
    top_k: int  # k of the TopK inside the graph; no vector has more terms
    model_digest: str  # digest of the model directory it was exported from
    inputs: tuple[str, ...]  # names of the inputs of the graph, in order
    files: tuple[FileDigest, ...]  # every file of the bundle except ``bundle.json``
    cut: Cut | None = None  # columns removed from the vocabulary head; None: none
    # graph of a separate query encoder, whose files are in the folder ``query``; None: there is none
    query: QueryGraph | None = None
    format: int = BUNDLE_FORMAT

    @property
    def digest(self) -> str:
        """Name of this bundle: sha256 (hex) that covers every file."""
        return digest_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk, without ``cut`` and ``query`` if the bundle has none."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_bytes(self) -> bytes:
        """Return the content of ``bundle.json``."""
        return record_bytes(self.to_json())

    @classmethod
    def load(cls, folder: Path, *, verify: bool = False) -> "Bundle":
        """Read a bundle's manifest."""
        remedy = f"if {folder} should be a bundle, make it again with lsr-prod export"
        bundle = read_record(folder / BUNDLE_FILE, cls.from_json, remedy)
        if verify:
            verify_files(folder, bundle.files)
        return bundle

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Bundle":
        """Read the form of ``to_json``."""
        if value.get("format") != BUNDLE_FORMAT:
            raise FormatVersionError(f"bundle has format {value.get('format')}; this release reads {BUNDLE_FORMAT}")
        query = value.get("query")
        return cls(
            precision=value["precision"],
            top_k=int(value["top_k"]),
            model_digest=value["model_digest"],
            inputs=tuple(value["inputs"]),
            files=tuple(FileDigest.from_json(file) for file in value["files"]),
            cut=Cut(**value["cut"]) if "cut" in value else None,
            query=QueryGraph(int(query["top_k"]), tuple(query["inputs"])) if query is not None else None,
        )


@dataclass(frozen=True, slots=True)
class EncoderCard:
    """Settings of an encoder."""

    architecture: str  # class name of the backbone, for example ``BertForMaskedLM``
    vocabulary_size: int  # V, the size of the output vocabulary
    vocabulary_sha256: str  # sha256 of the canonical JSON list of its V terms
    # ``none``, or ``lowercase`` when the tokenizer's normalizer lowercases (papers/casing, pre-processing)
    casing: Literal["none", "lowercase"] = "none"
    query_max_length: int = 64  # tokens of a query, special tokens included
    document_max_length: int = 256  # tokens of a document, special tokens included
    query_prompt: str = ""  # text put before every query
    document_prompt: str = ""  # text put before every document
    # ``log1p_relu`` is log(1 + relu(max_j logits_j)); ``l0`` applies log1p once more; ``relu`` is that of the heads
    # ``token_weights`` and ``autoencoder``
    activation: Literal["log1p_relu", "l0", "relu"] = "log1p_relu"
    # ``all`` pools every token that is not padding; ``not_bos`` skips the first (causal models); ``appended`` reads the
    # tokens appended to the text, each with a head of its own (UEmbed, arXiv 2608.02583)
    pooled_tokens: PooledTokens = "all"
    appended_tokens: int = 0  # EOS tokens that the tokenizer appends to a text to be pooled
    # tokens that a token attends to: all (``bidirectional``, as in masked language models), the earlier ones
    # (``causal``), or the earlier ones in the text repeated twice, where only the second copy is pooled
    # (``echo``; papers/csplade, 4)
    attention: Attention = "bidirectional"
    # ``tokens`` takes the maximum over the logits of the tokens; ``mean`` averages the hidden states before the
    # vocabulary head (papers/esplade-pretraining, J.1); ``first`` takes that of the first token (``autoencoder``)
    pooled_states: Literal["tokens", "mean", "first"] = "tokens"
    # ``tokenizer``: the output terms are its tokens; ``words``: the head has its own terms
    output_vocabulary: Literal["tokenizer", "words"] = "tokenizer"
    # ``uncased`` returns no cased terms: a word that has only a cased term becomes its lowercase form
    # (papers/casing, post-processing)
    output_casing: Literal["all", "uncased"] = "all"
    # ``model`` encodes queries with the model, as documents; ``idf`` makes inference-free queries: the output
    # terms in the query text, weighted by their inverse document frequency in the index;
    # ``learned`` weights them by a table that was trained with the documents (``formats.sparse``);
    # ``separate`` encodes queries with another model of the same output vocabulary, in ``QUERY_FOLDER``
    query_encoder: Literal["model", "idf", "learned", "separate"] = "model"
    # ``skipped``: inference-free queries have no special tokens, such as the unknown token; ``weighted``: those in the
    # text are terms like others, with learned weights (some models of sentence-transformers)
    query_special_tokens: Literal["skipped", "weighted"] = "skipped"
    # ``vocabulary``: every token activates terms of the whole output vocabulary; ``token_weights``: every token
    # has a weight, and a term the largest weight of its tokens (BGE-M3, arXiv 2402.03216); ``autoencoder``: the terms
    # are the latents of a sparse autoencoder on one state of the text (CSR, arXiv 2503.01776)
    head: Literal["vocabulary", "token_weights", "autoencoder"] = "vocabulary"
    # of the state that a sparse autoencoder reads: to length 1, to mean 0 and variance 1, or one after the other
    state_scaling: Literal["none", "length", "variance", "both"] = "none"
    max_terms: int | None = None  # the heaviest terms that a vector keeps; None: all
    parents: tuple[str, ...] = field(default=())  # digests of the models from which this one was made, nearest first
    format: int = CARD_FORMAT

    def max_length(self, kind: Kind) -> int:
        """Return the maximum number of tokens of a text of that kind, special tokens included."""
        return self.query_max_length if kind == "query" else self.document_max_length

    def prompt(self, kind: Kind) -> str:
        """Return the text put before a text of that kind."""
        return self.query_prompt if kind == "query" else self.document_prompt

    @property
    def most_terms(self) -> int:
        """Maximum number of terms of a vector."""
        return self.vocabulary_size if self.max_terms is None else min(self.max_terms, self.vocabulary_size)

    @property
    def inference_free(self) -> bool:
        """True if queries are weighted by stored term weights, without a model."""
        return self.query_encoder in ("idf", "learned")

    def check_model_encodes(self, kind: Kind) -> None:
        """Refuse queries if this model does not encode them."""
        if kind == "query" and self.query_encoder == "separate":
            problem = "the card says query_encoder separate: this model encodes documents only"
            raise ConfigError("kind", problem, f"encode queries with the encoder in the folder {QUERY_FOLDER}")
        if kind == "query" and self.inference_free:
            problem = f"the card says query_encoder {self.query_encoder}: no model reads queries"
            raise ConfigError("kind", problem, "search by text, or encode documents")

    def to_json(self) -> dict[str, Any]:
        """Return the form stored on disk."""
        standard = {one.name: one.default for one in fields(self)}
        values = {**asdict(self), "parents": list(self.parents)}
        return {name: value for name, value in values.items() if name not in _OPTIONAL or value != standard[name]}

    def to_bytes(self) -> bytes:
        """Return the content of ``encoder_card.json``."""
        return record_bytes(self.to_json())

    @classmethod
    def load(cls, folder: Path) -> "EncoderCard":
        """Read the card of a model directory or bundle."""
        path = folder / CARD_FILE

        def parse(value: dict[str, Any]) -> EncoderCard:
            if value.get("format") != CARD_FORMAT:
                raise FormatVersionError(f"{path} has format {value.get('format')}; this release reads {CARD_FORMAT}")
            unknown = set(value) - {f.name for f in fields(cls)}
            if unknown:
                raise ArtifactError(f"{path} has unknown fields {sorted(unknown)}; write it with the same release")
            card = cls(**{**value, "parents": tuple(value["parents"])})
            if not all(0 < card.max_length(kind) <= LONGEST for kind in ("query", "document")):
                raise ValueError(f"the maximum lengths are not from 1 to {LONGEST} tokens")
            return card

        return read_record(path, parse, "give a model directory or a bundle of lsr_prod")


def digest_bundle(folder: Path) -> tuple[FileDigest, ...]:
    """Return the files of a bundle for its manifest."""
    return tuple(file for file in digest_folder(folder) if file.path.rpartition("/")[2] != BUNDLE_FILE)


def read_vocabulary(folder: Path) -> list[str]:
    """Read the output vocabulary of a bundle: term id -> term."""
    card = EncoderCard.load(folder)

    def parse(vocabulary: list[str]) -> list[str]:
        if digest_json(vocabulary) != card.vocabulary_sha256:
            raise DigestMismatchError(
                f"{folder / VOCABULARY_FILE} differs from the digest in the encoder card; export the model again"
            )
        return vocabulary

    return read_record(folder / VOCABULARY_FILE, parse, "export again")


def longest_input(config: Mapping[str, Any], attention: Attention = "bidirectional") -> int:
    """Return the maximum number of tokens of a text, special tokens included; ``echo`` reads a text twice."""
    positions, kind = int(config["max_position_embeddings"]), config.get("model_type")
    if kind in POSITIONS_AFTER_PADDING or kind == "mpnet":
        positions -= 2 if kind == "mpnet" else int(config["pad_token_id"]) + 1
    return positions // 2 if attention == "echo" else positions
