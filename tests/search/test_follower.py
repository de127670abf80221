"""Following publications in the background."""

import gc
import queue
import threading
import weakref
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, ConfigError, QueryError
from lsr_prod.search import Searcher
from lsr_prod.search.follower import Follower
from lsr_prod.storage.formats.index_format import Publication
from tests.indexing.corpus import Doc, make_index


def test_a_follower_continues_after_a_failure_and_reports_it():
    steps, problems, done = iter([True, None, False]), [], threading.Event()

    def refresh():
        problems.append(follower.problem)
        step = next(steps, "end")
        if step == "end":
            done.set()
            return False
        if step is None:
            raise ArtifactError("shards are missing")
        return step

    follower = Follower(refresh, 0.01)
    assert done.wait(10)
    follower.stop()
    assert problems[:4] == [None, None, "ArtifactError: shards are missing", None]


def test_a_follower_stops():
    calls, before = [], threading.active_count()
    follower = Follower(lambda: bool(calls.append(1)), 0.01)
    follower.stop()
    count = len(calls)
    assert threading.active_count() <= before
    threading.Event().wait(0.05)
    assert len(calls) == count


CORPUS = {"a": Doc({1: 9}), "b": Doc({1: 7})}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    make_index(tmp_path, CORPUS, vocabulary_size=4)
    return tmp_path


def test_searcher_follows_publications_and_notifies(index: Path) -> None:
    versions: queue.Queue[str] = queue.Queue()
    with Searcher.open(index) as searcher:
        follower = searcher.follow(0.01, on_change=lambda publication: versions.put(publication.version))
        published = make_index(index, CORPUS, vocabulary_size=4, deleted={"a"})
        assert versions.get(timeout=10) == published.sha
        assert [hit.doc_id for hit in searcher.search_vector({1: 1.0}).hits] == ["b"]
        assert follower.problem is None
        follower.check_alive()
        with pytest.raises(QueryError, match="follows publications already"):
            searcher.follow(1)
    follower.stop()
    with pytest.raises(RuntimeError):
        follower.check_alive()
    with pytest.raises(QueryError, match="this searcher is closed"):
        searcher.follow(1)


def test_follower_of_a_forgotten_searcher_ends(index: Path) -> None:
    searcher = Searcher.open(index)
    follower, snapshot = searcher.follow(1000), weakref.ref(searcher.snapshot)
    del searcher
    gc.collect()
    follower._thread.join(10)
    assert not follower._thread.is_alive()
    assert snapshot() is None


def test_callback_may_close_the_searcher(index: Path) -> None:
    closed = threading.Event()
    with Searcher.open(index) as searcher:

        def close(_: Publication) -> None:
            searcher.close()
            closed.set()

        follower = searcher.follow(0.01, on_change=close)
        make_index(index, CORPUS, vocabulary_size=4, deleted={"a"})
        assert closed.wait(10)
        follower.stop()
        assert follower.problem is None


def test_failing_callback_is_logged(index: Path, caplog: pytest.LogCaptureFixture) -> None:
    called: queue.Queue[int] = queue.Queue()

    def fail(publication: Publication) -> None:
        called.put(publication.number)
        raise ValueError("no route")

    with Searcher.open(index) as searcher:
        follower = searcher.follow(0.01, on_change=fail)
        make_index(index, CORPUS, vocabulary_size=4, deleted={"a"})
        assert called.get(timeout=10) == 2
        make_index(index, CORPUS, vocabulary_size=4)
        assert called.get(timeout=10) == 3
        follower.stop()
    assert "callback for a new publication failed" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "name"), [({"seconds": 0}, "seconds"), ({"seconds": "5"}, "seconds"), ({"jitter": 1.5}, "jitter")]
)
def test_wrong_intervals_are_refused(index: Path, arguments: dict, name: str) -> None:
    with Searcher.open(index) as searcher, pytest.raises(ConfigError, match=name):
        searcher.follow(**arguments)
