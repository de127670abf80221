"""Whoever can write to the folder of a signed index forges its files: a reader with the public key gets no wrong answer."""

from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.shard import DOCUMENTS_FILE, array_name
from lsr_prod.search import Searcher
from lsr_prod.storage.publications import current_publication
from lsr_prod.storage.signatures import SIGNING_KEY, TRUSTED_KEYS
from tests.indexing.corpus import Doc, make_index
from tests.search.forge import forge_file
from tests.storage.keys import KEYS, private, public

TEXT = "Pay 100 EUR to account 111."
FORGED = "Pay 999 EUR to account 666."
DOCUMENTS = {f"d{i:02d}": Doc({1: 200 - i, 2 + i: 7}, TEXT if i == 0 else f"filler {i:04d}") for i in range(100)}


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed index in this process, which trusts the key."""
    monkeypatch.setenv(SIGNING_KEY, private(KEYS[0]))
    monkeypatch.setenv(TRUSTED_KEYS, public(KEYS[0]))
    index = tmp_path / "index"
    make_index(index, DOCUMENTS, vocabulary_size=200, order="id")
    assert current_publication(index).signature is not None
    return index


def shard_file(index: Path, name: str) -> Path:
    (shard,) = (index / "shards").iterdir()
    return shard / name


def test_forged_text_of_signed_index_is_refused(signed):
    path = shard_file(signed, DOCUMENTS_FILE)
    data = path.read_bytes()
    forge_file(path, data.find(TEXT.encode()), FORGED.encode(), free=data.find(b"filler 0050"))
    with pytest.raises(ArtifactError, match=r"docs\.arrow is damaged at byte"):
        Searcher.open(signed).search_vector({1: 1.0}, 1, fields=["text"])


def test_forged_ranking_of_signed_index_is_refused(signed):
    path = shard_file(signed, array_name("impacts"))
    size = path.stat().st_size
    first = path.read_bytes().index(bytes([200, 199, 198]))
    forge_file(path, first + 1, bytes([255]), free=size - 8)
    with pytest.raises(ArtifactError, match=r"impacts\.npy is damaged at byte"):
        Searcher.open(signed).search_vector({1: 1.0}, 1)
