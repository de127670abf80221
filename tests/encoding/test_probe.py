import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.encoding.plan import make_plan
from lsr_prod.encoding.probe import impact_step, probe_step
from lsr_prod.encoding.read import Reader
from lsr_prod.encoding.sources import resolve_source
from lsr_prod.inference import BundleEncoder


@given(largest=st.floats(0.001, 100))
def test_the_step_covers_the_largest_weight_with_headroom(largest: float):
    step = impact_step(largest, 8)
    assert largest * 1.05 <= step * 255 * (1 + 1e-12)
    assert step * 255 <= largest * 1.05 + 255 / 65536
    assert (step * 65536).is_integer()


def test_without_a_weight_there_is_a_step():
    assert impact_step(0.0, 8) == pytest.approx(1.05 / 255, abs=2**-16)
    assert impact_step(1e-9, 8) == 2**-16


def test_the_probe_is_the_first_good_documents(tmp_path: Path, tiny_bundle: Path):
    texts = ["fox", "the quick brown fox", "python python python", "a lock is released by its thread"]
    lines = [json.dumps({"_id": str(i), "text": text}) for i, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("\n".join(["no json", lines[0], "{}", lines[1]]))
    (tmp_path / "b.jsonl").write_text("\n".join(lines[2:]))
    source = SourceSettings(paths=[str(tmp_path)])
    files = resolve_source(source, {})
    plan = make_plan(files, source, EncodeSettings(bundle="b", table="t"), bundle_digest="b", options={})
    pieces = list(plan.slices())
    encoder = BundleEncoder(tiny_bundle)
    for documents in (1, 3, 512):
        found = probe_step(
            Reader(files, source, 4, {}),
            pieces,
            tiny_bundle,
            documents=documents,
            store_k=16,
            bits=8,
            batch_tokens=64,
            threads=1,
        )
        largest = max(
            float(encoder.encode([text], kind="document", top_k=16).weights.max()) for text in texts[:documents]
        )
        assert found == pytest.approx(impact_step(largest, 8), abs=2**-16)
