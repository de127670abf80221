import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.corpus.read import Reader
from lsr_prod.encoding.passages import document_factory
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, make_plan
from lsr_prod.encoding.scale import probe_scale, spread_slices
from lsr_prod.errors import SourceError
from lsr_prod.inference import BundleEncoder
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.table_format import quantize
from tests.encoding.pinned import pin


def plan_of(folder: Path, **settings: int) -> tuple[Plan, Reader]:
    source = SourceSettings(paths=[str(folder)])
    encode = EncodeSettings(bundle="b", table="t", **settings)
    plan = make_plan(resolve_source(source, {}), PlanInputs(source, encode, "b", {}))
    return plan, Reader(source, 4, {})


def settings_of(documents: int, bits: int = 8) -> EncodeSettings:
    return EncodeSettings(bundle="b", table="t", probe_documents=documents, impact_bits=bits)


def write(path: Path, texts: Sequence[str], *bad: str) -> None:
    lines = [json.dumps({"_id": f"{path.stem}{i}", "text": text}) for i, text in enumerate(texts)]
    path.write_text("\n".join([*bad, *lines]))


class Recorder:
    """Encodes a text as one term with its length as weight, and fails on texts with POISON."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        if any("POISON" in text for text in texts):
            raise RuntimeError("the graph failed")
        self.seen += texts
        lengths = np.array([len(text) for text in texts], np.float32)
        return SparseBatch(np.arange(len(texts) + 1), np.zeros(len(texts), np.int32), lengths)


def seen_by(folder: Path, documents: int) -> list[str]:
    plan, reader = plan_of(folder)
    recorder = Recorder()
    scale = probe_scale(reader, plan, recorder, settings_of(documents))
    assert scale.documents == len(recorder.seen)
    return sorted(recorder.seen)


def test_probe_reads_the_start_of_files_all_over_the_corpus(tmp_path: Path):
    for i, name in enumerate("abcd"):
        write(tmp_path / f"{name}.jsonl", [f"{name} {number} " + "x" * i for number in range(9)], "no json", "{}")
    assert [text[:3] for text in seen_by(tmp_path, 8)] == [f"{name} {i}" for name in "abcd" for i in (0, 1)]
    assert [text[:3] for text in seen_by(tmp_path, 2)] == ["b 0", "d 0"]
    assert len(seen_by(tmp_path, 7)) == 7
    assert len(seen_by(tmp_path, 512)) == 36


def test_probe_reads_more_of_large_files_when_small_files_end(tmp_path: Path):
    write(tmp_path / "a.jsonl", [f"a {i:02}" for i in range(50)])
    write(tmp_path / "b.jsonl", ["b 00"])
    write(tmp_path / "c.jsonl", [f"c {i:02}" for i in range(3)])
    assert seen_by(tmp_path, 20) == [f"a {i:02}" for i in range(16)] + ["b 00", "c 00", "c 01", "c 02"]


def test_probe_of_a_file_that_changes_while_it_is_sampled_raises(tmp_path: Path):
    write(tmp_path / "a.jsonl", ["text " * 500] * 4000)
    plan, reader = plan_of(tmp_path)

    class ChangingReader(Reader):
        def read(self, piece: Slice) -> Iterator[pa.Table]:
            for table in reader.read(piece):
                write(tmp_path / "a.jsonl", ["TEXT " * 500] * 4000)
                yield table

    changing = ChangingReader(reader.source, reader.cells, reader.options)
    with pytest.raises(SourceError, match=r"a\.jsonl has changed since it was pinned"):
        probe_scale(changing, plan, Recorder(), settings_of(8))


def test_probe_leaves_out_documents_that_fail(tmp_path: Path):
    write(tmp_path / "a.jsonl", ["one", "POISON " * 99, "three"])
    assert seen_by(tmp_path, 512) == ["one", "three"]


def test_slices_of_the_probe_are_spread_evenly_and_deterministic(tmp_path: Path):
    for number in range(100):
        write(tmp_path / f"{number:03}.jsonl", ["text"])
    plan, _ = plan_of(tmp_path)
    rounds = [[piece.ordinal for piece in some] for some in spread_slices(plan, 40)]
    assert rounds == [[piece.ordinal for piece in some] for some in spread_slices(plan, 40)]
    picked = rounds[0]
    assert len(picked) == 16
    assert all(5 < after - before < 8 for before, after in itertools.pairwise(picked))
    assert picked[0] < 7
    assert picked[-1] > 93
    assert sorted(itertools.chain(*rounds)) == list(range(100))
    assert len(rounds[0] + rounds[1]) >= 40
    assert [piece.ordinal for piece in next(spread_slices(plan, 1))] == [50]


def test_probe_of_many_small_files_has_as_many_documents_as_asked_for(tmp_path: Path):
    for number in range(90):
        write(tmp_path / f"{number:03}.jsonl", [f"text {number:02}"] if number % 3 else [])
    assert len(seen_by(tmp_path, 40)) == 40
    assert len(seen_by(tmp_path, 512)) == 60


def test_probe_replaces_documents_that_fail_by_others(tmp_path: Path):
    for number in range(40):
        write(tmp_path / f"{number:03}.jsonl", [f"POISON {number}" if number % 2 else f"text {number}"])
    plan, reader = plan_of(tmp_path)
    assert probe_scale(reader, plan, Recorder(), settings_of(16)).documents == 16


def test_empty_corpus_gives_a_scale_of_zero_documents(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text("")
    assert seen_by(tmp_path, 512) == []


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_scale_error_is_the_error_of_the_stored_vectors(tmp_path: Path, tiny_bundle: Path, bits: int):
    texts = ["fox", "the quick brown fox", "python python python", "a lock is released by its thread"]
    write(tmp_path / "a.jsonl", texts)
    plan, reader = plan_of(tmp_path)
    settings = EncodeSettings(bundle="b", table="t", store_k=16, batch_tokens=64)
    encoder = document_factory(pin(tiny_bundle), settings).open()
    scale = probe_scale(reader, plan, encoder, settings_of(9, bits))
    weights = BundleEncoder(tiny_bundle).encode(texts, kind="document", top_k=16, batch_tokens=64).weights
    impacts, clipped = quantize(weights, scale.step, bits)
    errors = np.abs(weights - impacts * scale.step)
    assert clipped == 0
    assert scale.error == pytest.approx(errors.mean() / weights.mean(), rel=1e-4)
    assert scale.largest_error == pytest.approx(errors.max(), rel=1e-4)
