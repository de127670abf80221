"""The encoder card: all that decides what vector a text gets, and nothing about a job.

It lies as ``encoder_card.json`` in every model directory and every bundle.
"""

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from lsr_prod.errors import ArtifactError, ConfigError, FormatVersionError
from lsr_prod.formats.digest import read_record, record_bytes

__all__ = ["CARD_FILE", "Attention", "EncoderCard", "Kind"]

CARD_FILE = "encoder_card.json"
CARD_FORMAT = 1

Kind = Literal["query", "document"]
Attention = Literal["bidirectional", "causal", "echo"]

# Written only where they differ from what every encoder had before there was a choice: its card, and so its digest,
# stay as they were.
_OPTIONAL = ("attention", "pooled_states", "output_vocabulary", "output_casing", "query_encoder")


@dataclass(frozen=True, slots=True)
class EncoderCard:
    """What an encoder is.

    Attributes:
        architecture: class name of the backbone, for example ``BertForMaskedLM``.
        vocabulary_size: V, the size of the output vocabulary.
        vocabulary_sha256: sha256 of the canonical JSON list of its V terms.
        casing: ``none``, or ``lowercase`` when the tokenizer's normalizer lowercases (papers/casing, pre-processing).
        query_max_length: tokens of a query, special tokens included.
        document_max_length: tokens of a document, special tokens included.
        query_prompt: text put before every query.
        document_prompt: text put before every document.
        activation: ``log1p_relu`` is log(1 + relu(max_j logits_j)); ``l0`` applies log1p once more.
        pooled_tokens: ``all`` pools every token that is not padding; ``not_bos`` leaves the first out (causal models).
        attention: what a token sees: every other one (``bidirectional``, as masked language models do), those before it
            (``causal``), or those before it in a text that is given twice, of which the second copy is pooled
            (``echo``; papers/csplade, 4).
        pooled_states: ``tokens`` takes the maximum over the tokens' logits; ``mean`` averages the hidden states before
            the vocabulary head (papers/esplade-pretraining, J.1).
        output_vocabulary: ``tokenizer``: its tokens are the output terms; ``words``: the head has terms of its own.
        output_casing: ``uncased`` returns no cased terms: a word that has only a cased one counts as its lowercase form
            (papers/casing, post-processing).
        query_encoder: ``model`` encodes queries as it does documents; ``idf``: a query is the output terms that stand
            in it, weighed by their inverse frequency in the documents of the index (``formats.idf``).
        parents: digests of what this encoder was made from, nearest first.
    """

    architecture: str
    vocabulary_size: int
    vocabulary_sha256: str
    casing: Literal["none", "lowercase"] = "none"
    query_max_length: int = 64
    document_max_length: int = 256
    query_prompt: str = ""
    document_prompt: str = ""
    activation: Literal["log1p_relu", "l0"] = "log1p_relu"
    pooled_tokens: Literal["all", "not_bos"] = "all"
    attention: Attention = "bidirectional"
    pooled_states: Literal["tokens", "mean"] = "tokens"
    output_vocabulary: Literal["tokenizer", "words"] = "tokenizer"
    output_casing: Literal["all", "uncased"] = "all"
    query_encoder: Literal["model", "idf"] = "model"
    parents: tuple[str, ...] = field(default=())
    format: int = CARD_FORMAT

    def max_length(self, kind: Kind) -> int:
        """Tokens of a text of that kind, special tokens included."""
        return self.query_max_length if kind == "query" else self.document_max_length

    def prompt(self, kind: Kind) -> str:
        """Text put before a text of that kind."""
        return self.query_prompt if kind == "query" else self.document_prompt

    def check_model_encodes(self, kind: Kind) -> None:
        """Refuse texts that no model of this encoder reads.

        Raises:
            ConfigError: ``kind`` is query, and queries are weighed by IDF.
        """
        if kind == "query" and self.query_encoder == "idf":
            raise ConfigError(
                "kind",
                "the card says query_encoder idf: no model reads queries",
                "search by text, or encode documents",
            )

    def to_json(self) -> dict[str, Any]:
        """The form stored on disk."""
        standard = {one.name: one.default for one in fields(self)}
        values = {**asdict(self), "parents": list(self.parents)}
        return {name: value for name, value in values.items() if name not in _OPTIONAL or value != standard[name]}

    def to_bytes(self) -> bytes:
        """Return the content of ``encoder_card.json``."""
        return record_bytes(self.to_json())

    @classmethod
    def load(cls, folder: Path) -> "EncoderCard":
        """Read the card of a model directory or bundle.

        Raises:
            ArtifactError: there is none, or it has unknown fields.
            FormatVersionError: it was written in a newer format.
        """
        path = folder / CARD_FILE

        def parse(value: dict[str, Any]) -> EncoderCard:
            if value.get("format") != CARD_FORMAT:
                raise FormatVersionError(f"{path} has format {value.get('format')}; this release reads {CARD_FORMAT}")
            unknown = set(value) - {f.name for f in fields(cls)}
            if unknown:
                raise ArtifactError(f"{path} has unknown fields {sorted(unknown)}; write it with the same release")
            return cls(**{**value, "parents": tuple(value["parents"])})

        return read_record(path, parse, "give a model directory or a bundle of lsr_prod")
