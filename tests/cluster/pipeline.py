"""The whole way on docstrings, from training to evaluation, with every artifact in the object store."""

import json
import sys
from typing import Any

from tests.cluster.endpoint_machine import BUCKET, EndpointMachine
from tests.cluster.namespaces import Machine
from tests.cluster.ray_machines import RayMachines

__all__ = ["STAGES", "command", "deployment", "digests", "query", "upload_inputs"]

STAGES = ("train", "export", "encode", "index", "serve", "evaluate")
_ROOT = f"s3://{BUCKET}"
_HTTP_PORT = 8000

_INPUTS = """
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.artifacts import put_artifact
from quickstart.docstrings import collect, write_collection
folder = Path('/tmp/home/inputs')
SparseEncoder.load({model!r}, document_max_length=64, query_max_length=32).save(folder / 'model')
put_artifact(store.child('start'), 'model', folder / 'model')
write_collection(folder, collect({documents}), {queries})
lines = (folder / 'corpus.jsonl').read_bytes().splitlines(keepends=True)
for number in range({files}):
    store.put_new(f'corpus/{{number:02d}}.jsonl', b''.join(lines[number::{files}]))
for name in ('queries.jsonl', 'qrels/test.tsv', 'pairs.jsonl'):
    store.put_new(f'data/{{name}}', (folder / name).read_bytes())
"""


def upload_inputs(endpoint: EndpointMachine, machine: Machine, model: str, *, documents: int, files: int) -> None:
    """Upload a start model, a corpus, training pairs, queries and judgments from a machine.

    Args:
        endpoint: where to.
        machine: a machine that sees the model.
        model: folder of a checkpoint.
        documents: size of the corpus.
        files: files of the corpus.
    """
    endpoint.run(machine, _INPUTS.format(model=model, documents=documents, queries=documents // 10, files=files))


def deployment(options: dict[str, str], *, steps: int = 40, workers: int = 2, **ray: Any) -> str:
    """Return the deployment of all stages as YAML.

    Args:
        options: ``storage.options``.
        steps: training steps.
        workers: training processes.
        **ray: the section ``ray``.
    """
    table, bundle, index = f"{_ROOT}/tables/docs", f"{_ROOT}/bundles/trained", f"{_ROOT}/indexes/docs"
    stage = {
        "data": {"paths": [f"{_ROOT}/data/pairs.jsonl"], "kind": "pairs"},
        "batch": {"queries": 8},
        "steps": steps,
        "document_max_length": 64,
        "objective": {"losses": [{"loss": "info_nce"}]},
        "optimizer": {"learning_rate": 3e-5},
        "checkpoint_every": 5,
    }
    sections = {
        "ray": ray,
        "storage": {"options": options},
        "source": {"paths": [f"{_ROOT}/corpus"], "text_fields": ["text"], "stored_fields": ["text"]},
        "train": {
            "model": f"{_ROOT}/start/model",
            "output": f"{_ROOT}/models/trained",
            "work": f"{_ROOT}/work",
            "workers": workers,
            "cpus_per_worker": 1,
            "stages": [stage],
        },
        "export": {"model": f"{_ROOT}/models/trained", "output": bundle},
        "encode": {"bundle": bundle, "table": table, "buckets": 16, "wave_megabytes": 1},
        "index": {"table": table, "bundle": bundle, "output": index, "shards": 2, "text_fields": ["text"]},
        "serve": {
            "index": index,
            "replicas": 1,
            "cpus": 0.1,
            "http_port": _HTTP_PORT,
            "http_host": "0.0.0.0",
        },
        "evaluate": {
            "index": index,
            "queries": f"{_ROOT}/data/queries.jsonl",
            "qrels": f"{_ROOT}/data/qrels/test.tsv",
            "measures": ["RR@10", "R@10"],
            "thresholds": [0.0],
            "k": 10,
        },
    }
    return json.dumps(sections)  # YAML too


def command(stage: str) -> list[str]:
    """Return the entry point of a stage; the deployment is in the working directory."""
    words = "index build" if stage == "index" else stage
    return ["lsr-prod", *words.split(), "--config", "deployment.yaml"]


def digests(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what has to be equal however the stages ran: digests, counts and measures."""
    return {
        "model": results["train"]["model_digest"],
        "bundle": results["export"]["bundle_digest"],
        "table": results["encode"]["table_digest"],
        "documents": results["encode"]["documents"],
        "quarantined": results["encode"]["quarantined"],
        "index": results["index"]["version"],
        "measures": [(row["name"], row["measures"]) for row in results["evaluate"]["systems"]],
    }


_QUERY = """
import json, urllib.request
body = json.dumps({{'text': 'read a file', 'k': 5}}).encode()
request = urllib.request.Request('http://{host}:{port}/search', body, {{'Content-Type': 'application/json'}})
answer = json.load(urllib.request.urlopen(request, timeout=120))
assert 'hits' in answer, answer
print(len(answer['hits']))
"""


def query(cluster: RayMachines) -> int:
    """Return the number of hits that the served index gives the client."""
    done = cluster.client.run([sys.executable, "-c", _QUERY.format(host=cluster.head.address, port=_HTTP_PORT)])
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
