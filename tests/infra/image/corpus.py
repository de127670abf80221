"""What the images run on: 100 documents, a bundle and a deployment, in a folder that is ``/mnt`` inside."""

import json
from pathlib import Path

import yaml

__all__ = ["DOCUMENTS", "QUERY", "make_deployment", "write_corpus"]

DOCUMENTS = 100
QUERY = "how do threads share a lock"
_TOPICS = ("Parse a JSON string into an object", "Return the square root of a number", "Open a file and read its lines")


def make_deployment(folder: Path) -> Path:
    """Write corpus, bundle and ``deployment.yaml`` for any user; returns the folder."""
    from lsr_prod.config import ExportSettings
    from lsr_prod.model import SparseEncoder
    from lsr_prod.model.export import export_bundle
    from quickstart.models import model_folder

    model = SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64)
    model.save(folder / "model")
    export_bundle(ExportSettings(model=str(folder / "model"), output=str(folder / "bundle")))
    write_corpus(folder)
    deployment = {
        "ray": {"num_cpus": 2},
        "source": {"paths": ["/mnt/corpus"], "text_fields": ["text"], "stored_fields": ["text"]},
        "encode": {"bundle": "/mnt/bundle", "table": "/mnt/table"},
        "index": {"table": "/mnt/table", "bundle": "/mnt/bundle", "output": "/mnt/index", "text_fields": ["text"]},
    }
    (folder / "deployment.yaml").write_text(yaml.safe_dump(deployment))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o644)
    return folder


def write_corpus(folder: Path) -> None:
    """Write a corpus, in which document ``lock`` answers the query, and a judged query."""
    texts = [f"{_TOPICS[at % len(_TOPICS)]}, variant {at}." for at in range(DOCUMENTS - 1)]
    rows = [{"_id": f"d{at:03}", "text": text} for at, text in enumerate(texts)]
    rows.append({"_id": "lock", "text": "A lock is released by the thread that holds it; threads share data."})
    for name in ("corpus", "judged"):
        (folder / name).mkdir()
    (folder / "corpus" / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "judged" / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": QUERY}) + "\n")
    (folder / "judged" / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tlock\t1\n")
