"""A fine-tuning that takes seconds: a model of 97 words, pairs of them, and a collection to validate with."""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from lsr_prod.model.layout_reader import parts_folder
from tests.model.tiny import tiny_checkpoint

Settings = dict[str, Any]


def small_start(folder: Path) -> Path:
    """A masked language model to start from."""
    return tiny_checkpoint(folder, "bert")


def small_training(folder: Path, start: Path, *, workers: int = 1, **stage: Any) -> Settings:
    """A deployment with one stage on 48 rows; documents of a row are its query's word and two others.

    Args:
        folder: an existing folder for the data, the work and the output.
        start: the model.
        workers: training processes.
        **stage: settings of the stage in place of those below.
    """
    rows = [
        {"query": f"w{i} w3", "positive": f"w{i} W{i + 1} w{i + 2}", "negatives": [f"w{i + 4} W8", f"w{i + 6} w5"]}
        for i in range(1, 85, 2)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings: Settings = {
        "data": {"paths": [str(folder / "rows.jsonl")], "kind": "negatives"},
        "batch": {"queries": 8, "negatives": 1},
        "steps": 12,
        "objective": {
            "losses": [{"loss": "info_nce"}],
            "sparsity": {
                "regularizers": [{"regularizer": "flops", "query": 0.01, "document": 0.01, "ramp": "quadratic"}]
            },
        },
        "optimizer": {"learning_rate": 1e-3},
        "checkpoint_every": 4,
        "watch": {"every": 1},
    }
    train = {"model": str(start), "work": str(folder / "work"), "output": str(folder / "out"), "workers": workers}
    train |= {"cpus_per_worker": 1, "use_gpu": False}
    return {"train": {**train, "stages": [{**settings, **stage}]}}


def small_collection(folder: Path, every: int) -> dict[str, Any]:
    """Settings of a validation with 40 documents and 20 queries."""
    documents = [{"_id": f"d{i}", "title": "", "text": f"w{i} W{i + 1} w{i + 2}"} for i in range(1, 81, 2)]
    queries = [{"_id": f"q{i}", "text": f"w{i} w3"} for i in range(1, 41, 2)]
    lines = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(1, 41, 2))]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in queries))
    (folder / "qrels.tsv").write_text("\n".join(lines) + "\n")
    paths = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels.tsv"}
    return {**{name: str(folder / path) for name, path in paths.items()}, "every": every, "measures": ["RR@10"]}


def weights_of(model: Path) -> str:
    """sha256 of the weights of a model directory."""
    return hashlib.sha256((parts_folder(model) / "model.safetensors").read_bytes()).hexdigest()


def difference(a: Path, b: Path) -> float:
    """Largest difference of a weight of two model directories.

    Biases of keys are left out: the softmax does not see them, their gradients are rounding errors, and Adam makes
    steps of full size of those.
    """
    mine, theirs = (load_file(parts_folder(one) / "model.safetensors") for one in (a, b))
    names = [name for name in mine | theirs if not name.endswith("key.bias")]
    return max(float((mine[name] - theirs[name]).abs().max()) for name in names)
