"""The ONNX bundle: an exported encoder that runs without torch.

::

    <bundle>/
      bundle.json          this manifest; its canonical JSON's sha256 is the bundle digest
      model.onnx           input_ids, attention_mask[, token_type_ids] -> terms int64 [B, k], weights float32 [B, k]
      tokenizer.json       prompts and lengths are applied by the runtime, from the card
      encoder_card.json    see ``card``
      vocabulary.json      list of the V output terms
      config.json          the backbone's configuration, so that other runtimes can open the folder
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from lsr_prod.errors import DigestMismatchError, FormatVersionError
from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.digest import FileDigest, digest_folder, digest_json, read_record, record_bytes, verify_files

__all__ = ["BUNDLE_FILE", "Bundle", "Cut", "Precision", "read_vocabulary"]

BUNDLE_FILE = "bundle.json"
BUNDLE_FORMAT = 1
GRAPH_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "vocabulary.json"

Precision = Literal["fp32", "fp16", "int8"]


@dataclass(frozen=True, slots=True)
class Cut:
    """Columns of the vocabulary head that are not in the graph.

    Attributes:
        kept: terms that the graph can return.
        cut: terms that it cannot.
        proven: those of the cut that no text at all can activate; the others were active in no text of the probe.
        texts: size of the probe.
        sha256: digest of the probe's texts.
    """

    kept: int
    cut: int
    proven: int
    texts: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """The manifest of an exported encoder.

    Attributes:
        precision: number format of the graph's weights.
        top_k: k of the TopK inside the graph; no vector has more terms.
        model_digest: digest of the model directory it was exported from.
        inputs: names of the graph's inputs, in order.
        files: every file of the bundle but ``bundle.json``.
        cut: what was left out of the vocabulary head; None: nothing.
    """

    precision: Precision
    top_k: int
    model_digest: str
    inputs: tuple[str, ...]
    files: tuple[FileDigest, ...]
    cut: Cut | None = None
    format: int = BUNDLE_FORMAT

    @property
    def digest(self) -> str:
        """sha256 (hex) that names this bundle; it covers every file."""
        return digest_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The form stored on disk."""
        return {
            "format": self.format,
            "precision": self.precision,
            "top_k": self.top_k,
            "model_digest": self.model_digest,
            "inputs": list(self.inputs),
            "files": [file.to_json() for file in self.files],
            **({"cut": asdict(self.cut)} if self.cut else {}),
        }

    @classmethod
    def of_folder(
        cls,
        folder: Path,
        *,
        precision: Precision,
        top_k: int,
        model_digest: str,
        inputs: tuple[str, ...],
        cut: Cut | None = None,
    ) -> "Bundle":
        """Return the manifest of the files in ``folder``."""
        files = tuple(file for file in digest_folder(folder) if file.path.rpartition("/")[2] != BUNDLE_FILE)
        return cls(precision, top_k, model_digest, inputs, files, cut)

    def to_bytes(self) -> bytes:
        """Return the content of ``bundle.json``."""
        return record_bytes(self.to_json())

    @classmethod
    def load(cls, folder: Path, *, verify: bool = False) -> "Bundle":
        """Read a bundle's manifest.

        Args:
            folder: the bundle.
            verify: compare every file with its sha256 too.

        Raises:
            ArtifactError: the folder is no bundle or lacks a file.
            DigestMismatchError: a file is damaged (with ``verify``).
            FormatVersionError: written in another format.
        """
        remedy = f"if {folder} should be a bundle, make it again with lsr-prod export"
        bundle = read_record(folder / BUNDLE_FILE, cls.from_json, remedy)
        if verify:
            verify_files(folder, bundle.files)
        return bundle

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Bundle":
        """Read what ``to_json`` wrote.

        Raises:
            FormatVersionError: written in another format.
        """
        if value.get("format") != BUNDLE_FORMAT:
            raise FormatVersionError(f"bundle has format {value.get('format')}; this release reads {BUNDLE_FORMAT}")
        return cls(
            precision=value["precision"],
            top_k=int(value["top_k"]),
            model_digest=value["model_digest"],
            inputs=tuple(value["inputs"]),
            files=tuple(FileDigest.from_json(file) for file in value["files"]),
            cut=Cut(**value["cut"]) if "cut" in value else None,
        )


def read_vocabulary(folder: Path) -> list[str]:
    """The output vocabulary of a bundle, term id -> term.

    Raises:
        DigestMismatchError: it is not the vocabulary that the encoder card names.
    """
    card = EncoderCard.load(folder)

    def parse(vocabulary: list[str]) -> list[str]:
        if digest_json(vocabulary) != card.vocabulary_sha256:
            raise DigestMismatchError(
                f"{folder / VOCABULARY_FILE} is not the vocabulary of {folder}'s encoder card; export again"
            )
        return vocabulary

    return read_record(folder / VOCABULARY_FILE, parse, "export again")
