from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from tests.encoding.bad_corpora import KINDS, Kind, outcome_of, table_of

PAGE = Path(__file__).parents[2] / "docs" / "input.md"


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_broken_input_is_quarantined_or_refused_and_no_other_row_lost(kind: Kind, tmp_path: Path):
    assert outcome_of(kind, tmp_path / "k") == kind.outcome


def test_table_in_the_documentation_matches_the_outcomes():
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 30
    assert table_of((kind.name, kind.outcome) for kind in KINDS) in PAGE.read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_encode_job_handles_all_kinds_of_broken_input_at_once(tmp_path: Path, tiny_bundle: Path):
    """Encode one corpus of every kind that needs no setting of its own and is not refused."""
    kinds = [kind for kind in KINDS if not kind.source and not kind.outcome.startswith("exit 2")]
    folders = [tmp_path / "corpus" / f"k{i}" for i in range(len(kinds))]
    (tmp_path / "corpus").mkdir()
    expected: Counter[str] = Counter()
    for kind, folder in zip(kinds, folders, strict=True):
        for words in outcome_of(replace(kind, rows=0), folder).split(", "):
            count, what = words.split()
            expected["document" if what.startswith("document") else what.strip("`")] += int(count)
    deployment = Deployment.model_validate(
        {
            "source": {
                "paths": [str(folder / kind.path) for kind, folder in zip(kinds, folders, strict=True)],
                "on_damage": "skip",
            },
            "encode": {
                "bundle": str(tiny_bundle),
                "table": str(tmp_path / "table"),
                "buckets": 4,
                "probe_documents": 16,
                "max_bad_fraction": 0.9,
            },
        }
    )
    summary = encode_corpus(deployment)
    assert summary.rows_out == expected.pop("document")
    assert summary.quarantined_by_reason == expected
    assert summary.rows_in == summary.rows_out + summary.quarantined
    quarantined = DeltaTable(tmp_path / "table_quarantine").to_pyarrow_table()
    rows = quarantined.to_pylist()
    assert summary.unread_bytes == sum(row["unread_bytes"] or 0 for row in rows) > 0
    assert summary.unread_share == summary.unread_bytes / summary.source_bytes
    damaged = [row for row in rows if row["reason"] == "damaged_file"]
    assert len({row["source"] for row in damaged}) == expected["damaged_file"]
    assert all("after" in row["detail"] for row in damaged)
