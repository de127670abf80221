"""Damage of the source stops the job, or is counted in the bad share: nothing is lost in silence."""

import gzip
import json
import random
from pathlib import Path

import pytest

from lsr_prod.encoding import encode_corpus
from lsr_prod.encoding.run_records import EncodeSummary
from lsr_prod.encoding.tables import open_table
from lsr_prod.encoding.tables.live_rows import total_live_rows
from lsr_prod.errors import QuarantineOverflowError, SourceError
from lsr_prod.storage import Store
from tests.encoding.test_given_up_plans import power_failure_after_one_wave
from tests.encoding.test_incremental_encode import deployment

pytestmark = pytest.mark.usefixtures("ray_local")


def run(bundle: Path, tmp_path: Path, **settings: object) -> EncodeSummary:
    source = {"paths": [str(tmp_path / "corpus")], "id_field": "id"}
    if "on_damage" in settings:
        source["on_damage"] = settings.pop("on_damage")
    return encode_corpus(deployment(bundle, tmp_path / "table", source=source, **settings))


def folder(tmp_path: Path) -> Path:
    path = tmp_path / "corpus"
    path.mkdir()
    return path


def quoted(path: Path, rows: range, bad: int) -> None:
    lines = [f'{i},"hello {i}"\n' if i != bad else f'{i},"a \\"quoted\\", word"\n' for i in rows]
    path.write_text("id,text\n" + "".join(lines))


def lines(rows: range, size: int = 200) -> bytes:
    rng = random.Random(rows.start)
    texts = ({"id": f"{i}", "text": f"word{i} {rng.randbytes(size).hex()}"} for i in rows)
    return "".join(json.dumps(text) + "\n" for text in texts).encode()


def test_bad_quote_of_a_first_plan_stops_the_job_and_skip_continues_it(tmp_path: Path, tiny_bundle: Path) -> None:
    path = folder(tmp_path) / "a.csv"
    quoted(path, range(500), bad=300)
    at = path.read_bytes().index(b'300,"a')
    with pytest.raises(SourceError, match=rf"a\.csv is damaged: the row at byte {at} .*; 300 rows before it were read"):
        run(tiny_bundle, tmp_path)
    assert open_table(Store(str(tmp_path / "table"))) is None
    summary = run(tiny_bundle, tmp_path, on_damage="skip")
    assert (summary.documents, summary.quarantined_by_reason) == (499, {"damaged_row": 1})
    assert (summary.unread_bytes, summary.unread_share) == (0, 0.0)


@pytest.mark.long
def test_damage_in_an_increment_stops_the_job_and_skip_continues_the_plan(tmp_path: Path, tiny_bundle: Path) -> None:
    corpus = folder(tmp_path)
    (corpus / "a.jsonl").write_bytes(lines(range(20)))
    first = run(tiny_bundle, tmp_path)
    quoted(corpus / "b.csv", range(100, 200), bad=150)
    packed = gzip.compress(lines(range(200, 600)))
    (corpus / "c.jsonl.gz").write_bytes(packed[:60_000])
    with pytest.raises(SourceError, match=r"source\.on_damage: skip"):
        run(tiny_bundle, tmp_path)
    table = open_table(Store(str(tmp_path / "table")))
    assert table is not None
    assert total_live_rows(table.file_table()) == 20
    with pytest.raises(QuarantineOverflowError, match=r"and \d+ of \d+ bytes were not read, more than encode.max_bad"):
        run(tiny_bundle, tmp_path, on_damage="skip", max_bad_fraction=0.02)
    summary = run(tiny_bundle, tmp_path, on_damage="skip", max_bad_fraction=1)
    assert summary.base_plan == first.plan
    assert summary.quarantined_by_reason == {"damaged_row": 1, "damaged_file": 1}
    assert summary.documents > 119 + 200
    assert summary.unread_bytes == 60_000  # how much is missing after the cut is unknown
    again = run(tiny_bundle, tmp_path, on_damage="skip", max_bad_fraction=1)
    assert (again.unread_bytes, again.unread_share) == (summary.unread_bytes, summary.unread_share)


@pytest.mark.long
def test_unfinished_plan_is_continued_after_skip_is_set(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first wave is committed; the second one has the damage."""
    corpus = folder(tmp_path)
    (corpus / "a.jsonl").write_bytes(lines(range(300), 1600))
    packed = gzip.compress(lines(range(300, 3600), 60))  # more rows than a batch: the probe does not reach the damage
    (corpus / "b.jsonl.gz").write_bytes(packed[: len(packed) * 9 // 10])
    sizes = {"wave_megabytes": 1, "slice_megabytes": 1, "probe_documents": 16}
    with pytest.raises(SourceError, match=r"b\.jsonl\.gz is damaged: .* rows before it were read"):
        run(tiny_bundle, tmp_path, **sizes)
    table = open_table(Store(str(tmp_path / "table")))
    assert table is not None
    assert total_live_rows(table.file_table()) == 300
    summary = run(tiny_bundle, tmp_path, on_damage="skip", max_bad_fraction=1, **sizes)
    assert summary.base_plan is None
    assert summary.waves == 2
    assert summary.waves_skipped == 1
    assert summary.documents > 300
    assert summary.quarantined_by_reason == {"damaged_file": 1}
    assert summary.unread_bytes > 0
    assert run(tiny_bundle, tmp_path, max_bad_fraction=1, **sizes).unread_bytes == summary.unread_bytes


@pytest.mark.long
def test_resumed_plans_count_the_unread_bytes_of_committed_waves(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = folder(tmp_path)
    (corpus / "a.jsonl").write_bytes(lines(range(20)))
    settings = {"on_damage": "skip", "max_bad_fraction": 1, "wave_megabytes": 1, "slice_megabytes": 1}
    run(tiny_bundle, tmp_path, **settings)
    (corpus / "b.jsonl").write_bytes(lines(range(300, 600), 1600))
    (corpus / "c.jsonl.gz").write_bytes(gzip.compress(lines(range(600, 800), 1600))[:200_000])
    with power_failure_after_one_wave(monkeypatch):
        run(tiny_bundle, tmp_path, **settings)
    summary = run(tiny_bundle, tmp_path, **settings)
    assert summary.waves_skipped == 1
    assert summary.unread_bytes > 0
