"""Jobs submitted from a machine that is no node, to nodes that share only an object store and lack lsr_prod."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.encoding.tables.sparse_table import table_digest
from quickstart.docstrings import collect
from tests.cluster.endpoint_machine import BUCKET, result
from tests.cluster.namespaces import missing
from tests.cluster.ray_machines import RayMachines, ray_machines

pytestmark = [
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]
_ENCODE = ["python", "jobs/encode.py", "--config", "deployment.yaml"]
_UPLOAD = """
from lsr_prod.storage.artifacts import put_artifact
put_artifact(store.child('bundles'), 'tiny', Path('/tmp/home/bundle'))
for name in ('a.jsonl', 'b.jsonl'):
    store.put_new('corpus/' + name, Path('/tmp/home/corpus', name).read_bytes())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, corpus: Path, tiny_bundle: Path) -> Iterator[RayMachines]:
    """A head and two workers without lsr_prod; a bundle and a corpus in the object store."""
    with ray_machines(tmp_path_factory.mktemp("logs"), installed=False) as cluster:
        cluster.client.copy_in(tiny_bundle, "/tmp/home/bundle")
        cluster.client.copy_in(corpus, "/tmp/home/corpus")
        cluster.endpoint.run(cluster.client, _UPLOAD)
        yield cluster


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of 60 documents in all."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [json.dumps({"_id": entry.name, "text": entry.text}) + "\n" for entry in collect(60)]
    for name, some in (("a.jsonl", lines[:30]), ("b.jsonl", lines[30:])):
        (folder / name).write_text("".join(some))
    return folder


def _deployment(corpus: str, bundle: str, table: str, options: dict[str, str]) -> dict[str, object]:
    return {
        "storage": {"options": options},
        "source": {"paths": [corpus], "text_fields": ["text"], "stored_fields": ["text"]},
        "encode": {"bundle": bundle, "table": table, "buckets": 4},
    }


def test_submission_without_token_is_refused(cluster: RayMachines) -> None:
    done = cluster.submit(_ENCODE, {}, token=False)
    assert done.returncode != 0
    assert "Missing authentication token" in done.stderr


def test_submitted_checkout_makes_table_of_single_machine(
    cluster: RayMachines, corpus: Path, tiny_bundle: Path, tmp_path: Path, ray_local: None
) -> None:
    root = f"s3://{BUCKET}"
    settings = _deployment(f"{root}/corpus", f"{root}/bundles/tiny", f"{root}/table", cluster.endpoint.options)
    done = result(cluster.submit(_ENCODE, {"deployment.yaml": json.dumps(settings)}, checkout=True))
    assert (done["documents"], done["actors"]) == (60, 2)

    local = _deployment(str(corpus), str(tiny_bundle), str(tmp_path / "table"), {})
    encode_corpus(Deployment.model_validate(local))
    assert done["table_digest"] == table_digest(str(tmp_path / "table"))


@pytest.mark.parametrize(
    ("setting", "words"), [("bundle", "encode.bundle"), ("corpus", "source.paths"), ("table", "encode.table")]
)
def test_folder_of_one_node_is_refused_in_one_line(cluster: RayMachines, setting: str, words: str) -> None:
    root = f"s3://{BUCKET}"
    places = {"corpus": f"{root}/corpus", "bundle": f"{root}/bundles/tiny", "table": f"{root}/table-{setting}"}
    places[setting] = f"/tmp/home/only-here/{setting}"
    for name in ("corpus", "bundle"):
        cluster.head.copy_from(cluster.client, f"/tmp/home/{name}", f"/tmp/home/only-here/{name}")
    settings = _deployment(**places, options=cluster.endpoint.options)
    done = cluster.submit(_ENCODE, {"deployment.yaml": json.dumps(settings)}, checkout=True)
    assert done.returncode != 0
    assert words in done.stdout
    assert "Traceback" not in done.stdout
