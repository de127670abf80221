"""Small work runs in the process of the job, larger work on Ray; errors keep their type in both."""

import os
import subprocess
import sys

import pytest

from lsr_prod.cluster.workers import Workers
from lsr_prod.config import RaySettings
from lsr_prod.errors import ArtifactError

SMALL = """
import os, sys
from lsr_prod.config import RaySettings
from lsr_prod.cluster.workers import Workers
with Workers(RaySettings()) as workers:
    found = dict(workers.run(os.getpid, [()] * 3, size=1000))
assert found == dict.fromkeys(range(3), os.getpid())
assert "ray" not in sys.modules
"""


def process_of(number: int) -> tuple[int, int]:
    if number == 7:
        raise ArtifactError("the seventh is damaged")
    return number, os.getpid()


def test_small_work_does_not_start_ray():
    subprocess.run([sys.executable, "-c", SMALL], check=True, timeout=60)


def test_results_from_ray_carry_the_number_of_their_call(ray_local):
    with Workers(RaySettings()) as workers:
        found = dict(workers.run(process_of, [(i,) for i in range(5)], size=10**9))
        assert {call: number for call, (number, _) in found.items()} == {i: i for i in range(5)}
        assert os.getpid() not in {process for _, process in found.values()}
        assert dict(workers.run(process_of, [], size=0)) == {}
        with pytest.raises(ArtifactError, match="the seventh"):
            list(workers.run(process_of, [(7,)], size=0))
        one = next(workers.run(process_of, [(i,) for i in range(5)], size=0))
        assert one[1][0] == one[0]
