"""The encoder card: all that decides what vector a text gets, and nothing about a job.

It lies as ``encoder_card.json`` in every model directory and every bundle.
"""

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from lsr_prod.errors import ArtefactError, FormatVersionError
from lsr_prod.formats.digest import canonical_json, read_record

__all__ = ["CARD_FILE", "EncoderCard", "Kind"]

CARD_FILE = "encoder_card.json"
CARD_FORMAT = 1

Kind = Literal["query", "document"]


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
    parents: tuple[str, ...] = field(default=())
    format: int = CARD_FORMAT

    def max_length(self, kind: Kind) -> int:
        """Tokens of a text of that kind, special tokens included."""
        return self.query_max_length if kind == "query" else self.document_max_length

    def prompt(self, kind: Kind) -> str:
        """Text put before a text of that kind."""
        return self.query_prompt if kind == "query" else self.document_prompt

    def to_json(self) -> dict[str, Any]:
        """The form stored on disk."""
        return {**asdict(self), "parents": list(self.parents)}

    def save(self, folder: Path) -> None:
        """Write ``encoder_card.json`` into ``folder``."""
        (folder / CARD_FILE).write_bytes(canonical_json(self.to_json()) + b"\n")

    @classmethod
    def load(cls, folder: Path) -> "EncoderCard":
        """Read the card of a model directory or bundle.

        Raises:
            ArtefactError: there is none, or it has unknown fields.
            FormatVersionError: it was written in a newer format.
        """
        path = folder / CARD_FILE

        def parse(value: dict[str, Any]) -> EncoderCard:
            if value.get("format") != CARD_FORMAT:
                raise FormatVersionError(f"{path} has format {value.get('format')}; this release reads {CARD_FORMAT}")
            unknown = set(value) - {f.name for f in fields(cls)}
            if unknown:
                raise ArtefactError(f"{path} has unknown fields {sorted(unknown)}; write it with the same release")
            return cls(**{**value, "parents": tuple(value["parents"])})

        return read_record(path, parse, "give a model directory or a bundle of lsr_prod")
