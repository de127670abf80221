"""Queries are encoded only by the bundle that encoded the index."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError, LineageError, QueryError
from lsr_prod.inference import BundleEncoder
from lsr_prod.search import Searcher
from lsr_prod.search.query_encoder import QueryEncoder
from lsr_prod.storage.folders import save_folder
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE, Bundle
from tests.indexing.corpus import Doc, make_index


def test_bundle_that_did_not_encode_index_is_rejected(text_index, tiny_bundle, tmp_path):
    make_index(tmp_path / "other", {"a": Doc({1: 1})}, vocabulary_size=4)
    with pytest.raises(LineageError, match="did not encode the index"):
        Searcher.open(tmp_path / "other", bundle=tiny_bundle).search("a lock")
    assert Searcher.open(text_index, bundle=tiny_bundle).search("a lock", 1).hits[0].doc_id == "threading.Lock"


def test_bundle_by_uri_encodes_queries(text_index, tiny_bundle, s3_options, tmp_path, monkeypatch):
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "cache"))
    place = f"s3://lsr/{tmp_path.name}/bundle"
    save_folder(tiny_bundle, place, s3_options)
    searcher = Searcher.open(text_index, bundle=place, storage_options=s3_options)
    assert searcher.search("a lock", 3).hits == Searcher.open(text_index).search("a lock", 3).hits


def test_query_vectors_equal_bundle_vectors_and_model_is_opened_once(text_index, tiny_bundle):
    snapshot = Searcher.open(text_index).snapshot
    encoder = QueryEncoder(threads=1, verify=True, bundle=None)
    texts = ["how do threads wait", ""]
    batch = BundleEncoder(tiny_bundle).encode(texts, kind="query")
    for number, query in enumerate(encoder.encode(snapshot, texts)):
        ids, weights = batch.row(number)
        assert np.array_equal(query.ids, ids)
        assert np.array_equal(query.weights, weights)
        assert query.terms == tuple(snapshot.vocabulary.names[i] for i in ids)
    assert encoder.of(snapshot) is encoder.of(snapshot)
    with pytest.raises(QueryError):
        encoder.encode(snapshot, ["fine", None])


def test_new_bundle_is_opened_before_its_version_becomes_current(tiny_bundle, tmp_path):
    index, other = tmp_path / "index", tmp_path / "other"
    make_index(index, {"a": Doc({1: 1})}, bundle=tiny_bundle)
    shutil.copytree(tiny_bundle, other)
    changed = replace(Bundle.load(tiny_bundle), model_digest="1" * 64)
    (other / BUNDLE_FILE).chmod(0o644)
    (other / BUNDLE_FILE).write_bytes(changed.to_bytes())
    searcher = Searcher.open(index)
    searcher.search("a lock")
    first = searcher.encoder
    make_index(index, {"b": Doc({1: 1})}, bundle=other)
    graph = index / "bundles" / changed.digest / "model.onnx"
    graph.rename(tmp_path / "model.onnx")
    with pytest.raises(ArtifactError):
        searcher.refresh()
    assert (searcher.search("a lock").version, searcher.encoder) == (searcher.publication.version, first)
    (tmp_path / "model.onnx").rename(graph)
    assert searcher.refresh()
    graph.unlink()  # nothing is opened by the first query
    assert searcher.search("a lock").version == searcher.publication.version
    assert searcher.encoder.bundle.digest == changed.digest


def test_queries_and_close_do_not_wait_while_another_bundle_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    began, opened = threading.Event(), threading.Event()

    def open_bundle(folder: Path, **_: Any) -> SimpleNamespace:
        if folder.name == "new":
            began.set()
            opened.wait(10)
        return SimpleNamespace(bundle=SimpleNamespace(digest=folder.name))

    monkeypatch.setattr("lsr_prod.inference.BundleEncoder", open_bundle)
    old, new = (SimpleNamespace(version=SimpleNamespace(bundle_digest=n), bundle=Path(n)) for n in ("old", "new"))
    encoder = QueryEncoder(threads=1, verify=True, bundle=None)
    first = encoder.of(old)
    with ThreadPoolExecutor(4) as pool:
        later = [pool.submit(encoder.of, new) for _ in range(2)]
        try:
            assert began.wait(10)
            assert pool.submit(encoder.of, old).result(5) is first
            pool.submit(encoder.close).result(5)
        finally:
            opened.set()
        assert later[0].result(5) is later[1].result(5)
    assert encoder._encoders == {}
    assert encoder.of(old) is not first
    encoder.of(new)
    encoder.keep(new)
    assert list(encoder._encoders) == ["new"]


def test_damaged_model_is_rejected(text_index, tiny_bundle, tmp_path):
    copy = tmp_path / "bundle"
    copy.mkdir()
    for path in tiny_bundle.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    graph = copy / "model.onnx"
    data = bytearray(graph.read_bytes())
    data[len(data) // 2] ^= 1
    graph.write_bytes(data)
    with pytest.raises(DigestMismatchError, match=r"model\.onnx"):
        Searcher.open(text_index, bundle=copy).search("a lock")
