"""The example backend: two workers answer while versions are published."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsr_prod.search import Searcher
from tests.indexing.corpus import Doc, encode_corpus, make_index

FOLDER = Path(__file__).parents[2] / "examples" / "backend"
TEXTS = {"lock": "a lock is held by one thread", "json": "parse a string of json", "root": "square root of a number"}
PUBLICATIONS = 20
SERVERS = {
    "uvicorn": ["uvicorn", "app:app", "--workers", "2", "--port", "{port}", "--log-level", "warning"],
    "gunicorn": ["gunicorn", "--config", "gunicorn.conf.py", "--bind", "127.0.0.1:{port}", "app:app"],
}


class Published:
    """An index whose versions differ in scores, and the hits that each version has to return."""

    def __init__(self, folder: Path, bundle: Path) -> None:
        self.folder = folder
        self.expected: dict[str, list[str]] = {}
        self._bundle = bundle
        self._encoded = encode_corpus(bundle, TEXTS)

    def publish(self, number: int) -> None:
        copies = {f"copy{number}": self._encoded["lock"]}
        corpus: dict[str, Doc] = self._encoded | copies
        version = make_index(self.folder, corpus, bundle=self._bundle).sha
        self.expected[version] = sorted([f"copy{number}", "lock"])


def get(port: int, path: str) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.loads(answer.read())


@pytest.fixture(params=[pytest.param("uvicorn", marks=pytest.mark.slow), "gunicorn"])
def backend(request: pytest.FixtureRequest, tiny_bundle: Path, tmp_path: Path) -> Iterator[tuple[int, Published]]:
    pytest.importorskip(request.param)
    published = Published(tmp_path / "index", tiny_bundle)
    published.publish(0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "metrics").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(FOLDER.parents[1]),
        "LSR_INDEX": str(published.folder),
        "LSR_POLL_SECONDS": "0.05",
        "LSR_DEADLINE_MS": "60000",
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics"),
    }
    command = [sys.executable, "-m", *(part.format(port=port) for part in SERVERS[request.param])]
    with subprocess.Popen(command, cwd=FOLDER, env=environment) as server:
        try:
            wait_for(lambda: len(workers(port)) == 2)
            yield port, published
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    assert server.returncode in (0, -signal.SIGTERM)


def workers(port: int) -> dict[int, int]:
    """Publication of every worker that answered one of some requests, by process id."""
    try:
        states = [get(port, "/health") for _ in range(20)]
    except OSError:  # not started yet
        return {}
    assert {state["problem"] for state in states} == {None}
    return {state["pid"]: state["publication"] for state in states}


def wait_for(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.long
def test_two_workers_answer_during_20_publications(backend: tuple[int, Published]) -> None:
    port, published = backend
    answers, failures, stop = [], [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                answers.append(get(port, "/search?q=a+lock+is+held+by+one+thread&k=2"))
            except Exception as error:  # noqa: BLE001 - reported by the test
                failures.append(error)

    clients = [threading.Thread(target=ask) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        for number in range(1, PUBLICATIONS + 1):
            published.publish(number)
            newest = list(published.expected)[-1]
            wait_for(lambda: newest in {answer["version"] for answer in answers[-50:]})  # noqa: B023 - used at once
        wait_for(lambda: list(workers(port).values()) == [PUBLICATIONS + 1] * 2)
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert failures == []
    for answer in answers:
        assert sorted(hit["doc_id"] for hit in answer["hits"]) == published.expected[answer["version"]]
    assert {answer["version"] for answer in answers} >= set(list(published.expected)[1:])
    embedded = Searcher.open(published.folder).search("a lock is held by one thread", 2)
    assert [hit["score"] for hit in get(port, "/search?q=a+lock+is+held+by+one+thread&k=2")["hits"]] == [
        hit.score for hit in embedded.hits
    ]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        total = [line for line in answer.read().decode().splitlines() if "queries_total{outcome=" in line]
    assert float(total[0].split()[-1]) == len(answers) + 1
