import pytest

from tests.faults.cluster import local_cluster


@pytest.mark.long
def test_connection_of_the_process_outlives_a_cluster(ray_local: None) -> None:
    from ray.experimental import internal_kv

    before = internal_kv.internal_kv_get_gcs_client()
    with local_cluster(0) as cluster:
        assert cluster.raylets() == []
    assert internal_kv.internal_kv_get_gcs_client() is before
    assert not internal_kv._internal_kv_exists("absent", namespace="test")
