"""Jobs submitted from a machine that is no node, to nodes that share only an object store and lack lsr_prod."""

from collections.abc import Iterator

import pytest

from tests.cluster.namespaces import missing
from tests.cluster.ray_machines import RayMachines, ray_machines

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayMachines]:
    """A head and two workers without lsr_prod."""
    with ray_machines(tmp_path_factory.mktemp("logs"), installed=False) as cluster:
        yield cluster


def test_submission_without_token_is_refused(cluster: RayMachines) -> None:
    done = cluster.submit(["python", "jobs/encode.py", "--help"], {}, token=False)
    assert done.returncode != 0
    assert "Missing authentication token" in done.stderr


def test_packaged_checkout_runs(cluster: RayMachines) -> None:
    done = cluster.submit(["python", "jobs/encode.py", "--help"], {}, checkout=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
