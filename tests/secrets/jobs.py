"""Run every subcommand in one process: ``python -m tests.secrets.jobs FOLDER MODEL BUNDLE OPTIONS [COMMAND ...]``.

Prints ``CODES {json}`` with name, exit code, expected exit code and seconds of each. The endpoint of OPTIONS has the
bucket ``lsr``. Without commands all are run; with some, those only.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lsr_prod.cluster import ray_session
from lsr_prod.config import RaySettings
from lsr_prod.jobs.command import main
from lsr_prod.storage import Store
from tests.model.tiny import tiny_model, tiny_tokenizer

__all__ = ["run"]

_WORDS = [
    "lock",
    "thread",
    "json",
    "string",
    "square",
    "root",
    "number",
    "socket",
    "path",
    "file",
    "array",
    "index",
    "query",
    "term",
]


def _place(folder: Path) -> str:
    """Return the folder of this run in the object store."""
    return f"s3://lsr/canaries/{folder.name}"


def _deployment(folder: Path, model: str, bundle: str, options: dict[str, str]) -> dict[str, Any]:
    place = _place(folder)
    data = {"paths": [f"{folder}/pairs.jsonl"], "kind": "pairs"}
    stage = {"data": data, "batch": {"queries": 4}, "steps": 1, "objective": {"losses": [{"loss": "info_nce"}]}}
    return {
        "storage": {"options": options},
        "source": {"paths": [f"{place}/corpus/*.jsonl"], "text_fields": ["text"], "stored_fields": ["text"]},
        "encode": {"bundle": bundle, "table": f"{place}/table", "buckets": 2, "max_bad_fraction": 0.5},
        "index": {
            "table": f"{place}/table",
            "bundle": bundle,
            "output": f"{folder}/index",
            "text_fields": ["text"],
        },
        "evaluate": {
            "index": f"{folder}/index",
            "queries": f"{folder}/queries.jsonl",
            "qrels": f"{folder}/qrels.tsv",
            "runs": f"{folder}/runs",
        },
        "maintain": {"table": f"{place}/table", "indexes": [f"{folder}/index"]},
        "export": {"model": model, "output": f"{folder}/exported"},
        "train": {
            "model": f"{folder}/bert",
            "output": f"{folder}/trained",
            "work": f"{folder}/work",
            "stages": [stage],
        },
        "mine": {
            "data": data,
            "index": f"{folder}/index",
            "output": f"{folder}/mined",
            "text_fields": ["text"],
            "at_least": 1,
        },
        "score": {
            "data": data,
            "teacher": {"kind": "sparse", "model": bundle},
            "output": f"{folder}/scored",
        },
        "vectors": {
            "action": "export",
            "table": f"{place}/table",
            "bundle": bundle,
            "format": "jsonl",
            "output": f"{folder}/vectors.jsonl",
        },
        "serve": {"index": f"{folder}/index", "cpus": 0.01},
    }


def _write_inputs(folder: Path, options: dict[str, str]) -> None:
    texts = [f"{first} {second}" for first in _WORDS for second in _WORDS]
    rows = [json.dumps({"_id": f"d{number}", "text": text}) for number, text in enumerate(texts)]
    Store(f"{_place(folder)}/corpus", options).put_new("a.jsonl", "\n".join([*rows, "{broken"]).encode())
    queries = [json.dumps({"_id": f"q{number}", "text": word}) for number, word in enumerate(_WORDS)]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    qrels = [f"q{number}\td{number * len(_WORDS)}\t1\n" for number in range(len(_WORDS))]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(qrels))
    pairs = [json.dumps({"query": f"w{i} w7", "positive": f"w{i} w9 w5"}) for i in range(1, 20)]
    (folder / "pairs.jsonl").write_text("\n".join(pairs) + "\n")
    tiny_model("bert").save_pretrained(folder / "bert")
    tiny_tokenizer().save_pretrained(folder / "bert")


def _commands(folder: Path, model: str, address: str) -> Iterator[tuple[str, list[str], int]]:
    """Yield name, arguments and expected exit code of each command."""
    config = ["--config", f"{folder}/deployment.yaml"]
    index = f"{folder}/index"
    yield "doctor", config, 0
    yield "encode", config, 0
    yield "index build", config, 0
    yield "evaluate", config, 0
    yield "table status", config, 0
    yield "table quarantine", config, 0
    yield "search", [index, "-k", "2"], 0
    yield "index takedown", [*config, "--id", "d1", "--note", "asked for"], 0
    yield "index restore", [*config, "--id", "d1"], 0
    yield "index publications", [index], 0
    yield "index catalog", [index], 0
    yield "index diff", [index, "--documents"], 0
    yield "index pin", [index, "--publication", "1", "--reason", "audit"], 0
    yield "index unpin", [index, "--publication", "1"], 0
    yield "index rollback", [*config, "--to", "1"], 0
    yield "reindex", config, 0
    yield "table maintain", config, 0
    yield "vectors", config, 0
    measured = {"documents": 1000, "rows_in": 1000, "encoded": 1000, "tokens": 100_000, "actors": 2}
    measured |= {"seconds": 60, "encode_seconds": 50, "busy_share": 0.8, "source_bytes": 10**6, "table_bytes": 600_000}
    measured |= {"threads_per_actor": 1}
    (folder / "measured.txt").write_text(f"RESULT {json.dumps(measured)}\n")
    yield "table estimate", ["--documents", "1e6", "--bytes", "1e9", "--run", f"{folder}/measured.txt"], 0
    # What fails must not quote a secret either.
    yield "encode", [*config, "--source.paths", "s3://absent/x"], 1
    yield "table status", ["s3://lsr/canaries/nothing"], 1
    yield "table status", ["gs://canaries/table"], 1
    yield "table status", ["az://canaries/table"], 1
    yield "export", config, 0
    yield "index warm", [index], 0
    yield "inspect vocabulary", [model], 0
    yield "model", [f"{folder}/bert", f"{folder}/directory"], 0
    yield "push", [f"{folder}/directory", "no name of a repository"], 2
    yield "mine", config, 0
    yield "score", config, 0
    yield "train", config, 0
    yield "inspect lineage", [f"{folder}/trained"], 0
    yield "watch", [*config, "--port", "0"], 0
    yield "serve", [*config, "--ray.address", address], 0


def _stop(before: Any) -> None:
    """End a command that serves until interrupted, once it handles the signal."""
    while signal.getsignal(signal.SIGTERM) is before:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


def run(folder: Path, model: str, bundle: str, options: dict[str, str], wanted: set[str]) -> list[list[Any]]:
    """Run the commands; returns name, exit code, expected exit code and seconds of each."""
    _write_inputs(folder, options)
    deployment = _deployment(folder, model, bundle, options)
    (folder / "deployment.yaml").write_text(yaml.safe_dump(deployment))
    codes = []
    with ray_session(RaySettings(num_cpus=2)):
        import ray

        for name, arguments, expected in _commands(folder, model, ray.get_runtime_context().gcs_address):
            if not wanted or name in wanted:
                sys.stderr.write(f"=== {name}\n")
                if name == "watch":
                    threading.Thread(target=_stop, args=(signal.getsignal(signal.SIGTERM),), daemon=True).start()
                begin = time.monotonic()
                code = main([*name.split(), *arguments])
                codes.append([name, code, expected, round(time.monotonic() - begin, 1)])
    return codes


if __name__ == "__main__":
    where, model_folder, bundle_folder, given, *some = sys.argv[1:]
    found = run(Path(where), model_folder, bundle_folder, json.loads(given), set(some))
    sys.stdout.write(f"CODES {json.dumps(found)}\n")
