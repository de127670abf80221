"""Nights that fail and feeds that repeat ids: the table ends equal to a full encode of the newest corpus."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lsr_prod.encoding import encode_corpus, table_digest
from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.results import WaveResult
from lsr_prod.encoding.run_records import EncodeSummary
from lsr_prod.errors import ConfigError, QuarantineOverflowError
from tests.encoding.test_incremental_encode import deployment, document, rows_of

pytestmark = pytest.mark.usefixtures("ray_local")

_PADDING = "x" * 300_000  # four documents are more than a wave of 1 MB


class PowerFailureError(Exception):
    """Ends a run between two waves."""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    return folder


def write(folder: Path, name: str, seed: int, ids: range) -> None:
    rng = random.Random(seed)
    rows = [{**document(rng, i), "padding": _PADDING} for i in ids]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(bundle: Path, table: Path, corpus: Path, abandon: str | None = None, fraction: float = 1) -> EncodeSummary:
    given = deployment(
        bundle, table, source={"paths": [str(corpus)]}, wave_megabytes=1, slice_megabytes=1, max_bad_fraction=fraction
    )
    return encode_corpus(given, abandon=abandon)


@contextmanager
def power_failure_after_one_wave(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the run in this context before it commits its second wave."""
    commit = Committer.commit

    def limited(self: Committer, result: WaveResult) -> bool:
        if result.wave == 1:
            raise PowerFailureError
        return commit(self, result)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", limited)
        with pytest.raises(PowerFailureError):
            yield


def interrupted_run(
    monkeypatch: pytest.MonkeyPatch, bundle: Path, table: Path, corpus: Path, abandon: str | None = None
) -> None:
    """Run until one wave is committed."""
    with power_failure_after_one_wave(monkeypatch):
        run(bundle, table, corpus, abandon)


@pytest.mark.long
def test_abandoned_plans_end_equal_to_full_encode(
    tmp_path: Path, corpus: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    for number, name in enumerate("abc"):
        write(corpus, name, number, range(4 * number, 4 * number + 4))
    interrupted_run(monkeypatch, tiny_bundle, table, corpus)
    (corpus / "b.jsonl").unlink()
    write(corpus, "d", 7, range(6, 14))  # ids of b and c come again with other texts
    with pytest.raises(ConfigError, match="--abandon") as refused:
        run(tiny_bundle, table, corpus)
    plan = str(refused.value).rpartition(" ")[2]
    interrupted_run(monkeypatch, tiny_bundle, table, corpus, plan)
    write(corpus, "a", 9, range(2, 6))
    with pytest.raises(ConfigError, match="--abandon") as refused:
        run(tiny_bundle, table, corpus)
    done = run(tiny_bundle, table, corpus, str(refused.value).rpartition(" ")[2])

    full = run(tiny_bundle, tmp_path / "full", corpus)
    assert table_digest(done.table) == full.table_digest
    assert rows_of(table) == rows_of(tmp_path / "full")
    assert done.unchanged > 0
    assert run(tiny_bundle, table, corpus).waves_skipped == done.waves


@pytest.mark.long
def test_night_with_too_many_bad_rows_is_superseded_by_next_night(
    tmp_path: Path, corpus: Path, tiny_bundle: Path
) -> None:
    table = tmp_path / "table"
    write(corpus, "a", 1, range(4))
    run(tiny_bundle, table, corpus)
    (corpus / "b.jsonl").write_text("{broken\n" * 200)
    with pytest.raises(QuarantineOverflowError):
        run(tiny_bundle, table, corpus, fraction=0.05)
    write(corpus, "b", 2, range(4, 8))
    with (corpus / "b.jsonl").open("a") as file:
        file.write("{broken\n")  # one of five: too few rows for a share
    done = run(tiny_bundle, table, corpus, fraction=0.05)
    assert done.quarantined == 1
    write(corpus, "b", 2, range(4, 8))
    full = run(tiny_bundle, tmp_path / "full", corpus)
    assert (done.documents, done.encoded, table_digest(done.table)) == (8, 4, full.table_digest)


@pytest.mark.long
def test_last_row_wins_in_increment_of_several_cells_per_bucket(
    tmp_path: Path, corpus: Path, tiny_bundle: Path
) -> None:
    def encode(table: Path) -> EncodeSummary:
        settings = {"buckets": 1, "wave_megabytes": 1, "cell_megabytes": 1, "slice_megabytes": 1}
        source = {"paths": [str(corpus)]}
        return encode_corpus(
            deployment(tiny_bundle, table, source=source, on_duplicate="last", max_bad_fraction=1, **settings)
        )

    write(corpus, "night-1", 1, range(6))
    encode(tmp_path / "table")
    write(corpus, "night-2", 2, range(4, 10))
    done, full = encode(tmp_path / "table"), encode(tmp_path / "full")
    assert (done.documents, done.quarantined_by_reason) == (10, {"duplicate_id": 2})
    assert table_digest(done.table) == full.table_digest
    assert rows_of(tmp_path / "table") == rows_of(tmp_path / "full")
