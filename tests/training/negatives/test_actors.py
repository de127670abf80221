"""Tests of the number of actors, and of errors raised by a slice."""

import time
from pathlib import Path
from typing import Any

import pytest
import ray

from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.training.negatives.job import make_job, mining_job
from tests.training.negatives.conftest import deployment, pairs_by_id, settings, write_lines


def actors(**changes: Any) -> int:
    section = settings("index", "pairs", **changes)
    return mining_job(section, {}, [], [], None, version="v", documents=14).actors()


def test_number_of_actors_is_limited_by_cores_and_settings(ray_local: None):
    assert actors() == 2
    assert actors(actors=1) == 1
    assert actors(actors=9) == 2
    assert actors(threads_per_actor=2) == 1
    with pytest.raises(ConfigError, match=r"^mine\.threads_per_actor: no machine has 3 cores"):
        actors(threads_per_actor=3)
    teacher = {"model": {"kind": "sparse", "model": "m"}, "use_gpu": True}
    with pytest.raises(ConfigError, match=r"^mine\.teacher\.use_gpu: the cluster has no GPU"):
        actors(teacher=teacher, margin=1)


def test_file_changed_since_planning_raises_source_error(mined_index: Path, tmp_path: Path, ray_local: None):
    pairs = write_lines(tmp_path / "pairs.jsonl", pairs_by_id())
    section = deployment(settings(mined_index, pairs, tmp_path / "out", actors=1))
    job = make_job(section)
    opened, survey = job.opened([], section), job.kind.survey(job.slices[0], job.settings, {})
    write_lines(pairs, pairs_by_id()[1:])
    with pytest.raises(SourceError, match=r"pairs\.jsonl has changed since it was pinned"):
        job._make([survey], opened, 1)
    end = time.monotonic() + 20
    while ray.available_resources().get("CPU") != 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert ray.available_resources()["CPU"] == 2  # no actor is left
