"""Which families of models can be loaded, exported, quantized, encoded with, and equal sentence-transformers?

    python -m benchmarks.model.families [FAMILY ...] [--write]

For each family a tiny checkpoint with random weights and the family's own tokenizer (``checkpoints``) is imported,
exported as a bundle in fp32 and in int8, and encodes a corpus with the encode job. Texts have odd Unicode and all
lengths up to the maximum of the model. sentence-transformers' ``encode_query`` and ``encode_document`` read the
checkpoint and the model directory that we save from it. ``--write`` puts the table between the markers of
docs/formats.md.

Differences are the largest of a weight over all texts, as queries and as documents: of the fp32 bundle from torch
(export), of the sparse table from the bundle (encode), and of torch from sentence-transformers; those above 1e-4 are
bold. The overlaps of int8 are those of the export's check against torch: shared terms, shared documents among the
first ten.

RESULT line: ``families`` (loaded), ``refused``, ``cells_above_limit``.
"""

import argparse
import json
import logging
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from deltalake import DeltaTable

from benchmarks.model.checkpoints import BLANK, FAMILIES, TEXTS, Family, write_checkpoint
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, ExportSettings, RaySettings
from lsr_prod.encoding import encode_corpus
from lsr_prod.errors import LsrError
from lsr_prod.inference import BundleEncoder
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle
from lsr_prod.storage.formats.bundle_format import Kind

PAGE = Path(__file__).parents[2] / "docs/formats.md"
LIMIT = 1e-4
"""Largest difference of a weight between our vectors and those of sentence-transformers."""

_KINDS: tuple[Kind, Kind] = ("query", "document")
_LONGEST = 1024  # terms of a vector; more than the vocabulary of any checkpoint
_COLUMNS = ("family", "architecture", "load", "export", "int8", "encode", "equal to sentence-transformers")


@dataclass(frozen=True, slots=True)
class Opened:
    """A family that was loaded."""

    family: Family
    checkpoint: Path
    model: Path  # the model directory
    encoder: SparseEncoder


def open_family(family: Family, folder: Path) -> Opened:
    """Write the checkpoint of a family, import it, and save it as a model directory."""
    checkpoint = write_checkpoint(family, folder / "checkpoint")
    encoder = SparseEncoder.load(checkpoint, query_prompt="query: ", document_prompt="the ")
    encoder.save(folder / "model")
    return Opened(family, checkpoint, folder / "model", encoder)


def vectors(encoder: SparseEncoder | BundleEncoder, kind: Kind) -> npt.NDArray[np.float32]:
    """Return the dense vectors of the texts, [n, V]."""
    return encoder.encode(TEXTS, kind=kind).dense(encoder.card.vocabulary_size)


def peer_difference(opened: Opened) -> float:
    """Return the largest difference of a weight from sentence-transformers, over checkpoint and model directory."""
    from sentence_transformers import SparseEncoder as Peer

    card = opened.encoder.card
    prompts = {"query": card.query_prompt, "document": card.document_prompt}
    largest = 0.0
    for folder, given in ((opened.checkpoint, prompts), (opened.model, None)):
        peer = Peer(str(folder), device="cpu", local_files_only=True, prompts=given)
        for kind in _KINDS:
            encode = peer.encode_query if kind == "query" else peer.encode_document
            theirs = encode(list(TEXTS), convert_to_sparse_tensor=False).numpy()
            largest = max(largest, float(np.abs(vectors(opened.encoder, kind) - theirs).max()))
    return largest


def export(opened: Opened, precision: str) -> tuple[BundleEncoder, dict[str, float]]:
    """Export a bundle; return it, and the figures of the check against torch."""
    output = opened.model.with_name(precision)
    settings = {"model": str(opened.model), "output": str(output), "precision": precision, "top_k": _LONGEST}
    figures = dict(export_bundle(ExportSettings.model_validate(settings)))
    return BundleEncoder(output), figures


def graph_difference(opened: Opened, bundle: BundleEncoder) -> float:
    """Return the largest difference of a weight between a bundle and torch."""
    return max(float(np.abs(vectors(opened.encoder, kind) - vectors(bundle, kind)).max()) for kind in _KINDS)


def job_difference(opened: Opened, bundle: BundleEncoder) -> float:
    """Encode the texts with the encode job; return the largest difference of its table from a bundle."""
    folder = opened.model.parent
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": str(i), "text": text}) + "\n" for i, text in enumerate(TEXTS)))
    encode = {
        "bundle": str(folder / "fp32"),
        "table": str(folder / "table"),
        "impact_bits": 16,
        "store_k": bundle.top_k,
    }
    small = {"actors": 1, "buckets": 1, "probe_documents": len(TEXTS)}
    deployment = {"source": {"paths": [str(corpus)], "text_fields": ["text"]}, "encode": {**encode, **small}}
    summary = encode_corpus(Deployment.model_validate(deployment))
    expected = vectors(bundle, "document")
    largest = 0.0
    for row in DeltaTable(folder / "table").to_pyarrow_table().to_pylist():
        weights = np.zeros(expected.shape[1], np.float32)
        weights[row["terms"]] = np.array(row["impacts"]) * summary.impact_step
        largest = max(largest, float(np.abs(weights - expected[int(row["doc_id"])]).max()))
    if summary.documents != len(TEXTS):
        raise AssertionError(f"the table has {summary.documents} of {len(TEXTS)} documents")
    return largest


def table_row(name: str, family: Family, folder: Path) -> list[str]:
    """Return the row of a family."""
    try:
        opened = open_family(family, folder)
    except LsrError as error:
        reason = str(error).partition(";")[0]  # the remedy lists all architectures
        return [name, family.model, f"refused: {reason}", *["not loaded"] * 4]
    blank = [opened.encoder.encode(BLANK, kind) for kind in _KINDS]
    bundle, _ = export(opened, "fp32")
    blank += [bundle.encode(BLANK, kind=kind) for kind in _KINDS]
    if any(len(batch.terms) for batch in blank):
        raise AssertionError(f"{name}: a text of white space has terms")
    figures = export(opened, "int8")[1]
    equal = "no causal model there" if family.attention == "causal" else _below(peer_difference(opened))
    return [
        name,
        family.model,
        "yes",
        _below(graph_difference(opened, bundle)),
        f"{figures['parity_overlap']:.3f}, {figures['parity_top10_overlap']:.3f}",
        _below(job_difference(opened, bundle)),
        equal,
    ]


def _below(difference: float) -> str:
    return f"{difference:.0e}" if difference < LIMIT else f"**{difference:.0e}**"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return the table of the page."""
    lines = [f"| {' | '.join(row)} |" for row in (_COLUMNS, *rows)]
    return "\n".join([lines[0], "|---" * len(_COLUMNS) + "|", *lines[1:]])


def main() -> None:
    """Print the table, and write it to the page with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"default: all of {', '.join(FAMILIES)}")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    given = parser.parse_args()
    names = given.families or list(FAMILIES)
    if unknown := set(names) - set(FAMILIES):
        parser.error(f"there is no family {', '.join(sorted(unknown))}")
    if given.write and given.families:
        parser.error("--write needs all families")
    logging.disable(logging.WARNING)
    rows = []
    with tempfile.TemporaryDirectory() as scratch, ray_session(RaySettings(num_cpus=2)):
        for name in names:
            rows.append(table_row(name, FAMILIES[name], Path(scratch) / name))
            print(" | ".join(rows[-1]), flush=True)
    print(markdown(rows))
    if given.write:
        pattern = r"(<!-- families -->\n).*?(<!-- end -->)"
        page = re.sub(
            pattern, lambda match: f"{match[1]}{markdown(rows)}\n{match[2]}", PAGE.read_text(), flags=re.DOTALL
        )
        PAGE.write_text(page)
    refused = sum(row[2] != "yes" for row in rows)
    above = sum("**" in cell for row in rows for cell in row)
    print_result({"families": len(rows) - refused, "refused": refused, "cells_above_limit": above})


if __name__ == "__main__":
    main()
