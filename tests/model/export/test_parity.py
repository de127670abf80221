import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from lsr_prod.config import ExportSettings
from lsr_prod.errors import ConfigError, ParityError
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle, parity
from lsr_prod.model.export.parity import read_parity_texts
from lsr_prod.storage.formats.bundle_format import Kind
from lsr_prod.storage.formats.sparse import SparseBatch

pytestmark = pytest.mark.usefixtures("traced_once")
SENTENCES = read_parity_texts(None)


def test_sample_is_varied() -> None:
    assert len(set(SENTENCES)) == len(SENTENCES) >= 60
    assert "" in SENTENCES
    assert max(len(text.split()) for text in SENTENCES) > 512


def test_bundle_ranks_like_torch(tiny_model: Path, tiny_bundle: Path) -> None:
    found = parity.check_parity(
        SparseEncoder.load(tiny_model), BundleEncoder(tiny_bundle), SENTENCES, min_overlap=0.999
    )
    assert found.texts == len(SENTENCES)
    assert found.top10_overlap == 1
    assert found.weight_difference < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("part", ["layer", "head"])
def test_corrupt_weight_is_detected(tiny_model: Path, tiny_bundle: Path, part: str) -> None:
    encoder = SparseEncoder.load(tiny_model)
    predictions = encoder.model.cls.predictions
    broken = predictions.bias if part == "head" else encoder.model.bert.encoder.layer[1].output.dense.weight
    with torch.no_grad():
        broken[: len(broken) // 2] += 0.3
    with pytest.raises(ParityError, match="share"):
        parity.check_parity(encoder, BundleEncoder(tiny_bundle), SENTENCES, min_overlap=0.999)


@pytest.mark.long
def test_rankings_are_compared_when_terms_are_equal(tiny_model: Path, tiny_bundle: Path) -> None:
    """Unevenly scaled weights keep every set of terms and change the ranking."""
    encoder = SparseEncoder.load(tiny_model)
    bundle = BundleEncoder(tiny_bundle)

    class Scaled(SparseEncoder):
        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            weights = super().forward(*args)
            return weights * (1 + 3 * (torch.arange(weights.shape[1]) % 2))

    scaled = Scaled(encoder.model, encoder.tokenizer, encoder.card).eval()
    found = parity.measure_parity(scaled, bundle, SENTENCES)
    assert found.overlap > 0.999
    assert found.top10_overlap < 0.999
    with pytest.raises(ParityError, match="rankings"):
        parity.check_parity(scaled, bundle, SENTENCES, min_overlap=0.999)


def test_int8_vectors_are_compared_alone_too(tiny_model: Path) -> None:
    encoder, texts = SparseEncoder.load(tiny_model), SENTENCES[:3]

    class WorseAlone:
        bundle = SimpleNamespace(precision="int8")
        top_k = 512

        def encode(self, texts: list[str], *, kind: Kind, batch_tokens: int = 512) -> SparseBatch:
            return encoder.encode(texts, kind).top(3 if batch_tokens == 1 else self.top_k)

    assert parity.measure_parity(encoder, cast("BundleEncoder", WorseAlone()), texts).overlap < 0.5
    WorseAlone.bundle.precision = "fp32"
    assert parity.measure_parity(encoder, cast("BundleEncoder", WorseAlone()), texts).overlap == 1


@pytest.mark.long
def test_failed_check_writes_no_bundle(tiny_model: Path, tmp_path: Path) -> None:
    settings = ExportSettings(
        model=str(tiny_model), output=str(tmp_path / "bundle"), precision="int8", int8_min_overlap=0.9999
    )
    with pytest.raises(ParityError):
        export_bundle(settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_int8_passes_its_own_limit(tiny_model: Path, tmp_path: Path) -> None:
    summary = export_bundle(ExportSettings(model=str(tiny_model), output=str(tmp_path / "bundle"), precision="int8"))
    assert 0.9 < summary["parity_overlap"] < 1
    assert summary["parity_top10_overlap"] > 0.9


@pytest.mark.long
def test_fp16_is_half_the_size_and_passes_its_own_limit(tiny_model: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    summary = export_bundle(ExportSettings(model=str(tiny_model), output=str(tmp_path / "bundle"), precision="fp16"))
    assert 0.98 < summary["parity_overlap"] < 1
    assert summary["parity_top10_overlap"] > 0.98
    assert summary["graph_bytes"] < 0.6 * (tiny_bundle / "model.onnx").stat().st_size
    vectors = BundleEncoder(tmp_path / "bundle").encode(["a quick fox", "", "word " * 300], kind="document")
    assert vectors.weights.dtype == np.float32
    assert np.diff(vectors.offsets)[1] == 0


def test_given_parity_texts_are_used(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(600)))
    assert parity.read_parity_texts(str(path))[:2] == ["text 0", "text 1"]
    assert len(parity.read_parity_texts(str(path))) == 512


@pytest.mark.parametrize(
    "content", [None, "", "no json", '{"title": "x"}', '{"text": 3}', "[1]", '{"text": "\\ud83d"}']
)
def test_parity_texts_of_another_format_are_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "texts.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"export\.parity_texts"):
        parity.read_parity_texts(str(path))
