"""A new version does not fit into the node cache: searchers and replicas keep answering, and say why."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lsr_prod.errors import LsrError
from tests.faults.full_disk.disk import SmallDisk

__all__ = ["LIMITS", "follow_on_a_full_disk"]

LIMITS = tuple({"inodes": free} for free in (0, 1, 2, 5, 9, 14)) + tuple({"pages": free} for free in (0, 1, 8, 20, 40))
"""Free inodes or pages of a cache whose next version needs more."""

_VECTOR = {0: 2.0, 3: 1.0}
_WAIT_S = 30


def follow_on_a_full_disk(given: Path, disk: SmallDisk, s3: Mapping[str, str], limit: Mapping[str, int]) -> None:
    """Publish a second version while the disk of a cache is full, and give it room afterwards.

    Args:
        given: an empty folder on a disk with room.
        disk: the disk of the cache, empty.
        s3: options of an object store.
        limit: free pages or inodes while the second version is published.

    Raises:
        AssertionError: a searcher or a replica stops answering, keeps silent, or does not open the version afterwards.
    """
    from lsr_prod.search import Searcher
    from lsr_prod.search.follower import Follower
    from lsr_prod.serving.replica import Versions
    from lsr_prod.storage import Store
    from tests.indexing.remote import make_versions, send, upload_current

    place = "s3://lsr/followed-" + "-".join(f"{name}-{free}" for name, free in limit.items())
    store = Store(place, dict(s3))
    first, second = make_versions(given / "index", 2)
    send(given / "index", first, store)
    searcher = Searcher.open(place, cache=disk.folder / "world" / "searcher", storage_options=dict(s3))
    replica = Versions(place, 0, 2, dict(s3))  # in the cache of the user
    before = searcher.search_vector(_VECTOR, 5).hits
    assert before
    disk.limit(**limit)
    send(given / "index", second, store)
    upload_current(given / "index", store)
    followers = [searcher.follow(0.1, jitter=0), Follower(replica.follow, 0.1)]
    try:
        for follower in followers:
            _wait(lambda follower=follower: follower.problem is not None, "no problem is reported")
            assert follower.problem is not None
            assert str(disk.folder) in follower.problem, follower.problem
            assert any(word in follower.problem for word in ("free", "fix")), follower.problem
        assert searcher.search_vector(_VECTOR, 5).hits == before
        assert replica.held == [first.sha]
        assert replica.last.version.sha == first.sha
        disk.roomy()
        for follower in followers:
            _wait(lambda follower=follower: follower.problem is None, "the problem stays though there is room")
        _wait(lambda: searcher.search_vector(_VECTOR, 5).hits != before, "the new version is not opened")
        assert replica.held == [first.sha, second.sha]
    finally:
        for follower in followers:
            follower.stop()
        searcher.close()


def _wait(reached: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + _WAIT_S
    while not reached():
        if time.monotonic() > until:
            raise LsrError(otherwise)
        time.sleep(0.05)
