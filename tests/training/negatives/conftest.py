"""A small index of real text, and pairs whose queries search it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config import Deployment, MineSettings
from lsr_prod.training.negatives.mine import MinedIndex
from tests.indexing.corpus import Doc, encode_corpus, make_index

TEXTS = {
    "lock": "A lock is released by the thread that holds it, and another thread that waits may go on.",
    "lock-copy": "A lock is released by the thread that holds it,  and another thread\nthat waits may go on.",
    "event": "An event lets one thread signal others; threads wait until the flag is set.",
    "semaphore": "A semaphore counts how many threads may hold it; a thread waits while none is left.",
    "barrier": "A barrier lets a number of threads wait until all of them have come.",
    "queue": "A queue hands items from one thread to another, and a thread waits while it is empty.",
    "dumps": "Serialize a Python object to a string in JSON format, with sorted keys if asked.",
    "loads": "Parse a JSON string into a Python object and raise an error where it is malformed.",
    "sqrt": "Return the square root of a number.",
    "bind": "Bind the socket to an address, which is a host and a port.",
    "gzip": "Open a compressed file for reading or writing in binary or text mode.",
    "zip": "Extract a member of a zip archive into a folder on disk.",
    "now": "Return the current date and time in a time zone.",
    "empty": "",
}
QUERIES = (
    ("how does a thread wait for a lock", "lock"),
    ("signal other threads", "event"),
    ("parse a JSON string", "loads"),
    ("write an object as JSON", "dumps"),
    ("square root", "sqrt"),
    ("open a compressed file", "gzip"),
    ("current time", "now"),
    ("bind a socket to a port", "bind"),
)


@pytest.fixture(scope="session")
def corpus(tiny_bundle: Path) -> dict[str, Doc]:
    """Documents of the index."""
    return encode_corpus(tiny_bundle, TEXTS)


@pytest.fixture(scope="session")
def mined_index(tiny_bundle: Path, corpus: dict[str, Doc], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index of the corpus in two shards, encoded by the tiny checkpoint."""
    folder = tmp_path_factory.mktemp("mined") / "index"
    make_index(folder, corpus, bundle=tiny_bundle, shards=2)
    return folder


@pytest.fixture(scope="session")
def opened(mined_index: Path) -> MinedIndex:
    """The index, opened once for all tests: loading the encoder takes longer than all searches."""
    return MinedIndex(settings(mined_index, "pairs"), {})


def write_lines(path: Path, rows: Sequence[Mapping[str, Any] | str]) -> Path:
    """Write rows as JSONL; a string is written unchanged."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def pairs_by_id() -> list[dict[str, str]]:
    """Return one row per query, with the id of its positive."""
    return [{"query": query, "pid": doc_id} for query, doc_id in QUERIES]


def settings(index: Path | str, pairs: Path | str, output: Path | str = "output", **changes: Any) -> MineSettings:
    """Return the section ``mine`` for pairs with the id of the positive in the column ``pid``."""
    data = {"paths": [str(pairs)], "kind": "pairs", **changes.pop("data", {})}
    values = {"data": data, "positive_id": "pid", "index": str(index), "output": str(output), "depth": 12}
    return MineSettings.model_validate({**values, "negatives": 3, **changes})


def deployment(section: MineSettings) -> Deployment:
    """Return a deployment with only this section."""
    return Deployment(mine=section)
