import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.errors import DigestMismatchError
from lsr_prod.inference import BundleEncoder, Counters
from lsr_prod.inference.session import GraphSession
from lsr_prod.storage.formats.bundle_format import Bundle
from lsr_prod.storage.formats.sparse import SparseBatch

TEXTS = ["how to sort a list", "", "  \n", "ünïcode and 한국어 text", "word " * 400, "a"]


@pytest.fixture(scope="module")
def encoder(tiny_bundle: Path) -> BundleEncoder:
    return BundleEncoder(tiny_bundle)


def _rows(batch: SparseBatch) -> list[dict[int, float]]:
    return [dict(zip(*(part.tolist() for part in batch.row(i)), strict=True)) for i in range(len(batch))]


def test_batch_returns_vectors_of_single_texts_in_input_order(encoder: BundleEncoder) -> None:
    together = _rows(encoder.encode(TEXTS, kind="document"))
    for text, row in zip(TEXTS, together, strict=True):
        (alone,) = _rows(encoder.encode([text], kind="document"))
        assert row.keys() == alone.keys()
        np.testing.assert_allclose([row[term] for term in alone], list(alone.values()), atol=1e-5)


def test_batch_size_does_not_change_terms(encoder: BundleEncoder) -> None:
    one_by_one = _rows(encoder.encode(TEXTS, kind="document", batch_tokens=1))
    assert [row.keys() for row in one_by_one] == [row.keys() for row in _rows(encoder.encode(TEXTS, kind="document"))]


def test_text_without_visible_character_encodes_to_empty_vector(encoder: BundleEncoder) -> None:
    rows = _rows(encoder.encode(TEXTS, kind="query"))
    assert [bool(row) for row in rows] == [True, False, False, True, True, True]
    assert len(encoder.encode([], kind="query")) == 0


def test_long_text_is_truncated_to_card_length(encoder: BundleEncoder) -> None:
    length = encoder.card.document_max_length
    long, cut = (f"{'word ' * (length - 2)}{tail}" for tail in ("zebra " * 50, ""))
    (first, second) = _rows(encoder.encode([long, cut], kind="document"))
    assert first == pytest.approx(second, abs=1e-5)


def test_top_k_keeps_heaviest_terms(encoder: BundleEncoder) -> None:
    (whole,) = _rows(encoder.encode(TEXTS[:1], kind="query"))
    (cut,) = _rows(encoder.encode(TEXTS[:1], kind="query", top_k=3))
    assert list(cut.items()) == sorted(whole.items(), key=lambda pair: -pair[1])[:3]


def test_encoded_token_ids_equal_encoded_texts(encoder: BundleEncoder) -> None:
    ids = encoder.token_ids(TEXTS, kind="document")
    assert [bool(row) for row in ids] == [True, False, False, True, True, True]
    assert max(map(len, ids)) == encoder.card.document_max_length
    assert _rows(encoder.encode_ids(ids)) == _rows(encoder.encode(TEXTS, kind="document"))
    assert len(encoder.encode_ids([])) == 0


def test_max_length_argument_does_not_change_card_length(encoder: BundleEncoder) -> None:
    (long,) = encoder.token_ids(["word " * 400], kind="document", max_length=402)
    assert len(long) == 402
    (cut,) = encoder.token_ids(["word " * 400], kind="document")
    assert len(cut) == encoder.card.document_max_length


def test_counters_count_documents_and_tokens(tiny_bundle: Path) -> None:
    opened = BundleEncoder(tiny_bundle)
    assert opened.counters == Counters(0, 0, 0), "the run at opening is not counted"
    rows = [[101, 2204, 102], [101, 102], []]
    opened.encode_ids(rows)
    assert opened.counters == Counters(documents=2, tokens=5, padded_tokens=6)
    opened.encode_ids(rows, batch_tokens=1)
    assert opened.counters == Counters(documents=4, tokens=10, padded_tokens=11)


def test_encoder_shared_by_threads_returns_same_vectors(encoder: BundleEncoder) -> None:
    texts = [f"text number {i} " + "word " * i for i in range(40)]
    expected = _rows(encoder.encode(texts, kind="document"))
    before = encoder.counters.documents
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: _rows(encoder.encode(texts, kind="document")), range(8)))
    assert all(rows == expected for rows in found)
    assert encoder.counters.documents - before == 8 * len(texts)


def test_query_expansion_contains_term_of_text(encoder: BundleEncoder) -> None:
    terms, _ = encoder.encode(["how to sort a list"], kind="query", top_k=5).row(0)
    assert "sort" in {encoder.vocabulary[term] for term in terms}


def test_verify_finds_damaged_graph(tiny_bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    graph = bytearray((folder / "model.onnx").read_bytes())
    graph[len(graph) // 2] ^= 1
    (folder / "model.onnx").write_bytes(graph)
    with pytest.raises(DigestMismatchError):
        BundleEncoder(folder, verify=True)


def test_vocabulary_that_differs_from_card_is_rejected(tiny_bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    vocabulary = json.loads((folder / "vocabulary.json").read_text())
    (folder / "vocabulary.json").write_text(json.dumps([*vocabulary[1:], "other"]))
    with pytest.raises(DigestMismatchError, match="encoder card"):
        BundleEncoder(folder)


def test_inference_import_loads_neither_torch_nor_ray() -> None:
    code = (
        "import lsr_prod.inference.encoder, sys\n"
        "print({name.split('.')[0] for name in sys.modules} & {'torch', 'ray', 'transformers'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_batches_on_a_gpu_have_a_multiple_of_8_tokens_that_the_model_has(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = []

    class OnGpu(GraphSession):
        def __init__(self, path: Path, **options: Any) -> None:
            super().__init__(path, **options)
            self.provider = "CUDAExecutionProvider"

        def run(self, feed: Any, outputs: Any) -> Any:
            lengths.append(feed["input_ids"].shape[1])
            return super().run(feed, outputs)

    plain = BundleEncoder(tiny_bundle)
    most = max(plain.card.query_max_length, plain.card.document_max_length)
    rows = [plain.token_ids(["fox " * 40], kind="document")[0][:length] for length in (3, 8, 9)]
    rows.append([rows[0][0]] * (most - 1))
    monkeypatch.setattr("lsr_prod.inference.encoder.GraphSession", OnGpu)
    monkeypatch.setattr(Bundle, "load", classmethod(lambda *_, **__: replace(plain.bundle, precision="int8")))
    encoder = BundleEncoder(tiny_bundle)
    assert "8-bit products run on the CPU" in caplog.text
    del lengths[:]
    found = encoder.encode_ids(rows, batch_tokens=1)
    assert lengths == [8, 8, 16, most]
    expected = plain.encode_ids(rows, batch_tokens=1)
    np.testing.assert_array_equal(found.terms, expected.terms)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
