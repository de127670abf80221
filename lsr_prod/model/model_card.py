"""``README.md`` of a model directory, the model card of Hugging Face: license, figures, data, and how to load it.

The model card, ``README.md``, has no time and no path: a repeated training makes the same model directory.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsr_prod.model.layout_reader import parts_folder
from lsr_prod.storage.drafts import write_file
from lsr_prod.storage.formats.bundle_format import QUERY_FOLDER, EncoderCard

MODEL_CARD_FILE = "README.md"
LICENSE = "source_license"
"""Name of the license of the model that training started from, in ``config.json``."""

_LICENSE = re.compile(r"^license:\s*(?:-\s*)?['\"]?([\w.-]{1,64})(?![\w.-]|['\"]?:)", re.MULTILINE)
_FIGURES = re.compile("rows|steps|l0_query|l0_document|start|best|validation/.+")
_LOAD = """\
from sentence_transformers import SparseEncoder
model = SparseEncoder("folder or id of this model")
documents = model.encode_document(["A lock of a thread.", "Parse a date."])
queries = model.encode_query(["lock a thread"])
print(model.similarity(queries, documents))
"""
_LOAD_HERE = """\
from lsr_prod import SparseEncoder
model = SparseEncoder.load("folder or id of this model")  # sentence-transformers has no such model
documents = model.encode(["A lock of a thread.", "Parse a date."])
terms, weights = documents.row(0)
print([(model.vocabulary[term], weight) for term, weight in zip(terms, weights)])
"""
_QUERIES = {
    "model": "The model encodes queries and documents.",
    "separate": "Queries are encoded by the model in the folder `query`.",
    "learned": "Queries need no model: every term of a query has a trained weight.",
    "idf": "Queries need no model: sentence-transformers weights their terms by the IDF of the training documents (1 "
    "before training), an index of lsr_prod by the IDF of its own documents.",
}


def source_license(folder: Path) -> str | None:
    """Return the license that the model card of a folder names; None: it names none."""
    path = folder / MODEL_CARD_FILE
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = _LICENSE.search(text.split("\n---", 1)[0]) if text.startswith("---") else None
    return found and found[1]


def is_non_commercial(license_name: str) -> bool:
    """Return whether a license forbids commercial use, such as cc-by-nc-sa-4.0."""
    return "nc" in re.split("[-_.]", license_name.lower())


def write_model_card(
    folder: Path, training: Mapping[str, Any] | None = None, summary: Mapping[str, Any] | None = None
) -> None:
    """Write ``README.md`` of a model directory.

    Args:
        folder: a complete model directory.
        training: description of the stage that trained it, as in ``training.json``.
        summary: figures of that stage.
    """
    card = EncoderCard.load(folder)
    configs = [one / "config.json" for one in (parts_folder(folder), parts_folder(folder / QUERY_FOLDER))]
    named = {json.loads(config.read_bytes()).get(LICENSE) for config in configs if config.is_file()}
    licenses = sorted(name for name in named if name)
    lines = ["---", "library_name: sentence-transformers", "pipeline_tag: feature-extraction"]
    lines += ["tags: [sparse-encoder, sparse, lsr_prod]", "---"]
    if len(licenses) == 1:
        lines.insert(-1, f"license: {licenses[0]}")
    lines += ["# Sparse encoder", "", f"A {card.architecture} with {card.vocabulary_size:,} output terms."]
    lines += [_QUERIES[card.query_encoder]]
    known = ", ".join(licenses) or "its license is not known"
    lines += ["", "## License", "", f"Of the model that training started from: {known}."]
    if any(map(is_non_commercial, licenses)):
        lines.append("**Warning: this license forbids commercial use, and holds for models trained from it too.**")
    code = _LOAD if (folder / "modules.json").is_file() else _LOAD_HERE
    lines += ["", "## Load it", "", "```python", *code.splitlines(), "```"]
    if training is not None:
        lines += ["", "## Training", "", f"Stage `{training['stage']}`; its settings are in `training.json`.", ""]
        digests = {**training.get("pins", {}), "training set": training.get("training_set")}
        rows = [(f"sha256 of {what}", digest) for what, digest in digests.items() if digest]
        found = {key: value for key, value in (summary or {}).items() if _FIGURES.fullmatch(key)}
        rows += [(key, f"{value:.6g}" if isinstance(value, float) else str(value)) for key, value in found.items()]
        lines += ["| figure | value |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows)] if rows else []
    write_file(folder / MODEL_CARD_FILE, ("\n".join(lines) + "\n").encode())
