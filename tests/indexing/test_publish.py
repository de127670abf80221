"""Publications: one winner a number, whoever races."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError, FormatVersionError, PublicationError, StaleParentError
from lsr_prod.formats.digest import canonical_json, digest_json
from lsr_prod.formats.publication import Publication, publication_name
from lsr_prod.indexing import delete_documents, publish
from lsr_prod.indexing.publish import Head, publish_derived
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.publications import current_publication, read_publication
from tests.indexing.corpus import Doc, make_index

PUBLISH = """
import sys
from pathlib import Path
from lsr_prod.indexing.publish import publish
index, versions = Path(sys.argv[1]), sys.argv[2:]
for i in range(15):
    publish(index, versions[i % len(versions)])
"""


@pytest.fixture
def versions(tmp_path):
    return [make_index(tmp_path, {"d": Doc({1: 1 + i})}, vocabulary_size=4).sha for i in range(4)]


def test_the_current_version_is_not_published_again(tmp_path, versions):
    assert current_publication(tmp_path).number == 4
    assert publish(tmp_path, versions[3]) == current_publication(tmp_path)
    assert publish(tmp_path, versions[0], note="back").number == 5
    assert read_publication(tmp_path, 5).note == "back"


def test_two_processes_never_share_a_number(tmp_path, versions):
    commands = [[sys.executable, "-c", PUBLISH, str(tmp_path), *pair] for pair in (versions[:2], versions[2:])]
    racers = [subprocess.Popen(command) for command in commands]
    assert [racer.wait(timeout=120) for racer in racers] == [0, 0]
    names = sorted(path.name for path in (tmp_path / "publications").iterdir())
    assert names == [f"{number:06d}.json" for number in range(1, len(names) + 1)]
    assert len(names) > 20
    history = [read_publication(tmp_path, number).version for number in range(1, len(names) + 1)]
    assert all(one != next_one for one, next_one in pairwise(history))


def test_threads_that_publish_the_same_version_make_one_publication(tmp_path, versions):
    with ThreadPoolExecutor(8) as pool:
        published = list(pool.map(lambda _: publish(tmp_path, versions[1]), range(16)))
    assert {publication.number for publication in published} == {5}


def test_a_version_that_is_not_there_or_shrinks_is_refused(tmp_path, versions):
    with pytest.raises(ArtifactError, match="missing"):
        publish(tmp_path, "0" * 64)
    with pytest.raises(ArtifactError, match="no sha256"):
        publish(tmp_path, "../../etc/passwd")
    many = make_index(tmp_path, {f"d{i}": Doc({1: 1}) for i in range(10)}, vocabulary_size=4)
    with pytest.raises(PublicationError, match="would vanish"):
        publish(tmp_path, versions[0], max_shrink=0.5)
    assert current_publication(tmp_path).version == many.sha


def test_a_version_is_published_upon_its_parent_or_not_at_all(tmp_path, versions):
    assert publish(tmp_path, versions[0], parent=4).number == 5
    with pytest.raises(StaleParentError, match="publication 5 came after 4"):
        publish(tmp_path, versions[1], parent=4)
    with pytest.raises(StaleParentError):
        publish(tmp_path, versions[1], parent=0)
    assert publish(tmp_path, versions[0], parent=4).number == 5  # what it wants is current already
    assert publish(tmp_path, versions[1], parent=5).number == 6


def test_a_derivation_starts_again_from_the_new_head(tmp_path, versions):
    tried = []

    def derive(head: Head):
        tried.append(head.number)
        if len(tried) == 1:
            publish(tmp_path, versions[1], note="in between")
        return read_version(tmp_path, versions[0])

    assert publish_derived(tmp_path, derive, note="mine").number == 6
    assert tried == [4, 5]
    assert read_publication(tmp_path, 5).note == "in between"


def test_of_many_that_publish_upon_one_parent_one_wins(tmp_path, versions):
    def attempt(version: str) -> bool:
        try:
            return publish(tmp_path, version, parent=4).version == version
        except StaleParentError:
            return False

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(attempt, versions[:3])) == 1
    assert current_publication(tmp_path).number == 5


def test_tombstones_pass_the_gates_too(tmp_path, versions):
    made = delete_documents(tmp_path, ["d"])
    publish(tmp_path, versions[0], parent=made.publication.number)
    file = read_version(tmp_path, made.publication.version).tombstones[0].file
    (tmp_path / file.path).write_bytes(b"x" * file.size)
    with pytest.raises(DigestMismatchError, match="tombstones"):
        publish(tmp_path, made.publication.version)


@pytest.mark.parametrize(("written", "read"), [(1, True), (99, False)])
def test_a_version_of_an_older_format_is_followed_and_of_a_newer_one_is_not(tmp_path, versions, written, read):
    value = {**read_version(tmp_path, versions[3]).to_json(), "format": written}
    sha = digest_json(value)
    (tmp_path / "versions" / f"{sha}.json").write_bytes(canonical_json(value))
    name = tmp_path / "publications" / publication_name(5)
    name.write_bytes(canonical_json(Publication(5, sha, "", "").to_json()))
    if read:
        assert publish(tmp_path, versions[0], parent=5).number == 6
    else:
        with pytest.raises(FormatVersionError):
            publish(tmp_path, versions[0])
