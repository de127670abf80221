"""Nodes open the bundle that the sparse table is encoded with, and refuse another one before the first block."""

import json
import os
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.encoding.actors.actor import EncoderActor, ModelSettings
from lsr_prod.encoding.isolation.isolated import IsolatedEncoder
from lsr_prod.encoding.job import _encode
from lsr_prod.encoding.passages import document_factory
from lsr_prod.encoding.prepare import prepare
from lsr_prod.errors import ArtifactError, DigestMismatchError, LineageError
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import user_cache
from lsr_prod.storage.folders import save_folder
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE, CARD_FILE, Bundle, digest_bundle
from tests.encoding.actors.test_actor import rows, wave
from tests.encoding.pinned import pin


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_bundle, tmp_path / "bundle")


def replace(bundle: Path) -> str:
    """Turn a bundle into another valid one, with a shorter document length; return its digest."""
    card = json.loads((bundle / CARD_FILE).read_bytes())
    (bundle / CARD_FILE).write_text(json.dumps({**card, "document_max_length": 64}))
    old = Bundle.load(bundle)
    new = Bundle(
        files=digest_bundle(bundle),
        precision=old.precision,
        top_k=old.top_k,
        model_digest=old.model_digest,
        inputs=old.inputs,
    )
    (bundle / BUNDLE_FILE).write_bytes(new.to_bytes())
    return new.digest


def deployment(bundle: str, root: Path, **encode: object) -> Deployment:
    values = {"bundle": bundle, "table": str(root / "table"), "buckets": 2, "probe_documents": 4, **encode}
    source = {"paths": [str(root / "corpus")], "text_fields": ["text"], "stored_fields": ["text"]}
    return Deployment.model_validate({"source": source, "encode": values})


def add_documents(root: Path, name: str, count: int) -> None:
    lines = [json.dumps({"_id": f"{name}{i}", "text": f"a quick fox {i}"}) for i in range(count)]
    (root / "corpus").mkdir(exist_ok=True)
    (root / "corpus" / f"{name}.jsonl").write_text("\n".join(lines))


@pytest.mark.long
def test_bundle_replaced_before_the_first_block_of_an_actor_commits_nothing(
    bundle: Path, tmp_path: Path, ray_local: None
):
    settings = deployment(str(bundle), tmp_path)
    add_documents(tmp_path, "a", 6)
    before = encode_corpus(settings)
    add_documents(tmp_path, "b", 6)
    work = prepare(settings)
    new = replace(bundle)
    with pytest.raises(LineageError, match=f"has the digest {new}.*encoded with {before.bundle_digest}"):
        _encode(work)
    assert DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 6


@pytest.mark.long
def test_bundle_replaced_before_the_probe_creates_no_table(bundle: Path, tmp_path: Path, ray_local: None):
    add_documents(tmp_path, "a", 6)
    work = prepare(deployment(str(bundle), tmp_path))
    new = replace(bundle)
    with pytest.raises(LineageError, match=f"has the digest {new}"):
        _encode(work)
    assert not (tmp_path / "table" / "_delta_log").exists()


@pytest.mark.long
def test_bundle_that_is_not_on_the_node_is_named_with_the_node(bundle: Path, tmp_path: Path, ray_local: None):
    factory = document_factory(pin(bundle), deployment(str(bundle), bundle.parent).encode)
    shutil.rmtree(bundle)
    message = rf"bundle {bundle} is not on node {os.uname().nodename}.*; give a URI"
    with pytest.raises(ArtifactError, match=message):
        factory.open()
    actor = EncoderActor(ModelSettings(factory, batch_timeout_s=60, document_timeout_s=30))
    with pytest.raises(ArtifactError, match=message):
        actor.encode(wave(tmp_path), {}, rows(0), isolated=False)
    with IsolatedEncoder(factory, timeout_s=60) as child, pytest.raises(ArtifactError, match=message):
        child.encode(["fox"])


@pytest.mark.long
def test_damaged_bundle_in_a_child_process_raises_its_error(bundle: Path):
    factory = document_factory(pin(bundle), deployment(str(bundle), bundle.parent).encode)
    (bundle / CARD_FILE).write_text("{}")
    with IsolatedEncoder(factory, timeout_s=60) as child, pytest.raises(DigestMismatchError, match=CARD_FILE):
        child.encode(["fox"])


@pytest.mark.long
def test_bundle_by_uri_is_fetched_by_the_child_process_once_for_the_node(
    bundle: Path, tmp_path: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = f"s3://lsr/{tmp_path.name}/bundle"
    save_folder(bundle, place, s3_options)
    pinned = pin(place, s3_options)
    factory = document_factory(pinned, deployment(place, tmp_path).encode)
    with IsolatedEncoder(factory, timeout_s=60) as child:
        assert len(child.encode(["fox"])) == 1
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        assert any(b"lsr_prod.encoding.isolation.process" in one for one in commands)
        # All users of a machine can read the arguments of a process.
        assert not any(s3_options["aws_endpoint"].encode() in one for one in commands)
    assert len(list(user_cache().glob("artifacts/artifacts/*/"))) == 1
    replace(bundle)
    Store(f"s3://lsr/{tmp_path.name}", s3_options).delete("bundle.json")
    save_folder(bundle, place, s3_options)
    with pytest.raises(LineageError, match="has the digest"):
        factory.open()
