"""An index of real text, shared by the suites of the search package."""

from pathlib import Path

import pytest

from tests.indexing.corpus import encode_corpus, make_index

TEXTS = {
    "threading.Lock": "A lock is released by the thread that holds it, and another thread that waits may go on.",
    "threading.Event": "An event lets one thread signal others; threads wait until the flag is set.",
    "json.dumps": "Serialize a Python object to a string in JSON format, with sorted keys if asked.",
    "json.loads": "Parse a JSON string into a Python object and raise an error where it is malformed.",
    "math.sqrt": "Return the square root of a number.",
    "random.shuffle": "Shuffle a list in place with random numbers.",
    "socket.bind": "Bind the socket to an address, which is a host and a port.",
    "gzip.open": "Open a compressed file for reading or writing in binary or text mode.",
    "zipfile.extract": "Extract a member of a zip archive into a folder on disk.",
    "datetime.now": "Return the current date and time in a time zone.",
    "empty": "",
}


@pytest.fixture(scope="session")
def text_index(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts above in two shards, encoded by the tiny checkpoint."""
    folder = tmp_path_factory.mktemp("text") / "index"
    make_index(folder, encode_corpus(tiny_bundle, TEXTS), bundle=tiny_bundle, shards=2)
    return folder
