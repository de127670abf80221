from pathlib import Path

import pytest

from lsr_prod.storage import Store
from tests.objectstore.endpoint import s3_endpoint
from tests.objectstore.races import race_restarts, run_races


@pytest.mark.long
def test_store_with_atomic_creation_passes_all_races(tmp_path: Path, s3_options: dict[str, str]) -> None:
    assert run_races(Store(f"s3://lsr/{tmp_path.name}", s3_options), 10)[1] == []


@pytest.mark.long
def test_races_find_a_store_that_ignores_the_condition() -> None:
    with s3_endpoint("--broken", buckets=["ignores-conditions"]) as options:
        found = run_races(Store("s3://ignores-conditions/races", options), 5)[1]
        restarted = race_restarts(Store("s3://ignores-conditions/restarts", options), 3, lambda: None)[2]
    assert any("was created by 8 of 8 writers" in sentence for sentence in found)
    assert any("of 4 processes" in sentence for sentence in found)
    assert len(restarted) == 3
    assert any("publications were created" in sentence for sentence in found)
