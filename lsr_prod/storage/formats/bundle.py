"""The ONNX bundle: an exported encoder that runs without torch.

::

    <bundle>/
      bundle.json          this manifest; the sha256 of its canonical JSON is the bundle digest
      model.onnx           input_ids, attention_mask[, token_type_ids] -> terms int64 [B, k], weights float32 [B, k]
      tokenizer.json       without prompts and truncation: the runtime applies those of the card
      encoder_card.json    see ``formats.card``
      vocabulary.json      list of the V output terms
      query_weights.npy    only with learned query weights, see ``formats.term_weights``
      config.json          configuration of the backbone, so that other runtimes can open the folder
      query/               a separate query encoder: the same files except bundle.json, which names them all
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from lsr_prod.errors import DigestMismatchError, FormatVersionError
from lsr_prod.storage.formats.card import EncoderCard
from lsr_prod.storage.formats.digest import (
    FileDigest,
    digest_folder,
    digest_json,
    read_record,
    record_bytes,
    verify_files,
)

BUNDLE_FILE = "bundle.json"
BUNDLE_FORMAT = 1
GRAPH_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "vocabulary.json"

Precision = Literal["fp32", "fp16", "int8"]


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
