"""Source, bundle, sparse table and quarantine on an S3 endpoint give the same results as local folders."""

import json
from pathlib import Path
from typing import Any

import pytest

from lsr_prod import Searcher
from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.indexing import build_index
from lsr_prod.storage import Store
from lsr_prod.storage.folders import save_folder
from quickstart.docstrings import collect

BUNDLE = "s3://lsr/spine/bundles/tiny"

pytestmark = pytest.mark.usefixtures("ray_local")


def _deployment(root: str, index: Path, bundle: str, options: dict[str, str]) -> Deployment:
    values: dict[str, Any] = {
        "storage": {"options": options},
        "source": {"paths": [f"{root}/corpus/*.jsonl"], "text_fields": ["text"], "stored_fields": ["text"]},
        "encode": {"bundle": bundle, "table": f"{root}/table", "buckets": 4, "max_bad_fraction": 0.1},
        "index": {"bundle": bundle, "table": f"{root}/table", "output": str(index), "text_fields": ["text"]},
    }
    return Deployment.model_validate(values)


def _corpus(root: str, options: dict[str, str]) -> None:
    lines = [json.dumps({"_id": entry.name, "text": entry.text}) for entry in collect(60)]
    store = Store(f"{root}/corpus", options)
    assert store.put_new("a.jsonl", ("\n".join(lines[:30]) + "\n").encode())
    assert store.put_new("b.jsonl", ("\n".join([*lines[30:], "{broken"]) + "\n").encode())


@pytest.mark.long
def test_table_on_s3_equals_table_in_local_folder(
    tmp_path: Path, tiny_bundle: Path, s3_options: dict[str, str]
) -> None:
    summaries = {}
    save_folder(tiny_bundle, BUNDLE, s3_options)
    places = (("local", str(tmp_path), str(tiny_bundle), {}), ("s3", "s3://lsr/spine", BUNDLE, s3_options))
    for name, root, bundle, options in places:
        _corpus(root, options)
        deployment = _deployment(root, tmp_path / f"index-{name}", bundle, options)
        summaries[name] = encode_corpus(deployment)
        again = encode_corpus(deployment)
        assert again.waves_skipped == again.waves
        build_index(deployment)
    for key in ("table_digest", "rows_in", "rows_out", "quarantined_by_reason"):
        assert getattr(summaries["s3"], key) == getattr(summaries["local"], key)
    assert summaries["s3"].rows_out == 60
    assert summaries["s3"].quarantined_by_reason == {"broken_json": 1}

    local, remote = (Searcher.open(tmp_path / f"index-{name}") for name in ("local", "s3"))
    found = remote.search("how to read a file", k=5)
    assert found.hits == local.search("how to read a file", k=5).hits
    assert len(found.hits) == 5
