"""Tests of the size of the actor pool, and of errors raised by a slice."""

import time
from pathlib import Path

import numpy as np
import pytest
import ray

from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.negatives.job import mine_slices, pool_size
from lsr_prod.negatives.known import KnownPositives
from lsr_prod.negatives.plan import make_plan
from tests.negatives.conftest import deployment, pairs_by_id, settings, write_lines


def test_pool_size_is_limited_by_cores_and_actors(ray_local: None):
    assert pool_size(settings("index", "pairs")) == 2
    assert pool_size(settings("index", "pairs", actors=1)) == 1
    assert pool_size(settings("index", "pairs", actors=9)) == 2
    assert pool_size(settings("index", "pairs", threads_per_actor=2)) == 1
    with pytest.raises(ConfigError, match=r"^mine\.threads_per_actor: no machine has 3 cores"):
        pool_size(settings("index", "pairs", threads_per_actor=3))


def test_file_changed_since_planning_raises_source_error(mined_index: Path, tmp_path: Path, ray_local: None):
    pairs = write_lines(tmp_path / "pairs.jsonl", pairs_by_id())
    plan = make_plan(deployment(settings(mined_index, pairs, tmp_path / "out")))
    write_lines(pairs, pairs_by_id()[1:])
    nothing = KnownPositives(np.empty(0, np.uint64), np.empty(0, np.uint64))
    with pytest.raises(SourceError, match=r"pairs\.jsonl has changed since it was pinned"):
        list(mine_slices(plan, [0], nothing, None, 1))
    end = time.monotonic() + 20
    while ray.available_resources().get("CPU") != 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert ray.available_resources()["CPU"] == 2  # no actor is left
