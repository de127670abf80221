import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lsr_prod.config import ExportSettings
from lsr_prod.errors import ConfigError, ParityError
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle
from lsr_prod.model.export.columns import check_lost, find_columns
from lsr_prod.storage.formats.bundle_format import Bundle
from tests.model.tiny import ARCHITECTURES, WORDS, tiny_checkpoint

DEAD = (20, 41, 90)
PROBE = [" ".join(WORDS[i : i + 6]) for i in range(0, 80, 2)]


def _encoder(folder: Path, architecture: str = "bert") -> SparseEncoder:
    """Encoder whose terms DEAD have a bias so low that no text can activate them."""
    encoder = SparseEncoder.load(tiny_checkpoint(folder / "checkpoint", architecture))
    with torch.no_grad():
        encoder.model.get_output_embeddings().bias[list(DEAD)] = -1000.0
    return encoder


def _jsonl(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_term_that_no_text_can_activate_is_proven_dead(architecture: str, tmp_path: Path) -> None:
    encoder = _encoder(tmp_path, architecture)
    columns, cut = find_columns(encoder, PROBE)
    assert not set(DEAD) & set(columns.tolist())
    assert len(DEAD) <= cut.proven <= cut.cut
    assert cut.kept + cut.cut == encoder.card.vocabulary_size
    assert cut.texts == len(PROBE)


def test_lost_terms_of_other_texts_are_counted_and_limited(tmp_path: Path) -> None:
    encoder = _encoder(tmp_path)
    columns, _ = find_columns(encoder, PROBE)
    assert check_lost(encoder, PROBE, columns, most=0.0) == 0
    terms = encoder.encode(PROBE).terms
    without = columns[columns != terms[0]]
    assert check_lost(encoder, PROBE, without, most=1.0) >= np.mean(terms == terms[0]) / 2
    with pytest.raises(ParityError, match=r"of 40 texts were active in none of export\.probe_texts"):
        check_lost(encoder, PROBE, without, most=0.0)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", pytest.param("int8", marks=pytest.mark.slow)])
def test_cut_bundle_returns_same_vectors_and_records_cut(precision: str, tmp_path: Path) -> None:
    _encoder(tmp_path).save(tmp_path / "model")
    texts = _jsonl(tmp_path / "probe.jsonl", PROBE)
    common = {"model": str(tmp_path / "model"), "precision": precision, "top_k": 1000, "parity_texts": texts}
    common |= {"int8_min_overlap": 0.5}
    whole = export_bundle(ExportSettings(**common, output=str(tmp_path / "whole")))
    cut = export_bundle(ExportSettings(**common, output=str(tmp_path / "cut"), probe_texts=texts))
    assert whole["cut_terms"] == 0
    assert Bundle.load(tmp_path / "whole").cut is None
    recorded = Bundle.load(tmp_path / "cut", verify=True).cut
    assert recorded is not None
    assert (recorded.cut, recorded.proven) == (cut["cut_terms"], cut["cut_terms_proven"])
    assert cut["top_k"] == recorded.kept == 97 - recorded.cut
    vectors = [BundleEncoder(tmp_path / name).encode(PROBE, kind="document") for name in ("whole", "cut")]
    np.testing.assert_array_equal(vectors[0].terms, vectors[1].terms)
    np.testing.assert_allclose(vectors[0].weights, vectors[1].weights, atol=1e-5)
    with pytest.raises(ConfigError, match="another bundle"):
        export_bundle(ExportSettings(**common, output=str(tmp_path / "cut")))


def test_missing_probe_is_refused(tmp_path: Path) -> None:
    _encoder(tmp_path).save(tmp_path / "model")
    settings = ExportSettings(model=str(tmp_path / "model"), output=str(tmp_path / "b"), probe_texts="/nowhere.jsonl")
    with pytest.raises(ConfigError, match=r"export\.probe_texts: there is no file"):
        export_bundle(settings)
    assert not (tmp_path / "b").exists()
