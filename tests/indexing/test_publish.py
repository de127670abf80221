"""Publications: one writer gets each number, also with concurrent writers."""

import getpass
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from lsr_prod.cluster.workers import IN_PROCESS
from lsr_prod.errors import ArtifactError, FormatVersionError, PublicationError, StaleParentError
from lsr_prod.indexing.publish import (
    Approval,
    Candidate,
    CurrentVersion,
    Publisher,
    publisher_name,
    read_current_version,
    rollback,
    take_down,
    write_version,
)
from lsr_prod.indexing.tombstones import load_takedowns
from lsr_prod.storage import publications
from lsr_prod.storage.formats.digests import canonical_json, digest_json
from lsr_prod.storage.formats.index_format import Publication, publication_name
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.publications import create_publication, current_publication, read_publication
from tests.indexing.corpus import Doc, make_index
from tests.indexing.publishing import publish

PUBLISH = """
import sys
from pathlib import Path
from lsr_prod.indexing.publish import Publisher
index, versions = Path(sys.argv[1]), sys.argv[2:]
for i in range(15):
    Publisher(index).publish(versions[i % len(versions)], None)
"""


@pytest.fixture
def versions(tmp_path):
    return [make_index(tmp_path, {"d": Doc({1: 1 + i})}, vocabulary_size=4).sha for i in range(4)]


def test_current_version_is_not_published_again(tmp_path, versions):
    assert current_publication(tmp_path).number == 4
    assert publish(tmp_path, versions[3]) == current_publication(tmp_path)
    assert publish(tmp_path, versions[0], note="back").number == 5
    assert read_publication(tmp_path, 5).note == "back"


@pytest.mark.long
def test_concurrent_processes_never_share_a_number(tmp_path, versions):
    commands = [[sys.executable, "-c", PUBLISH, str(tmp_path), *pair] for pair in (versions[:2], versions[2:])]
    racers = [subprocess.Popen(command) for command in commands]
    assert [racer.wait(timeout=120) for racer in racers] == [0, 0]
    names = sorted(path.name for path in (tmp_path / "publications").iterdir())
    assert names == [f"{number:06d}.json" for number in range(1, len(names) + 1)]
    assert len(names) > 20
    history = [read_publication(tmp_path, number).version for number in range(1, len(names) + 1)]
    assert all(one != next_one for one, next_one in pairwise(history))


def test_threads_that_publish_one_version_make_one_publication(tmp_path, versions):
    with ThreadPoolExecutor(8) as pool:
        published = list(pool.map(lambda _: publish(tmp_path, versions[1]), range(16)))
    assert {publication.number for publication in published} == {5}


def test_publish_rejects_missing_versions(tmp_path, versions):
    with pytest.raises(ArtifactError, match="missing"):
        publish(tmp_path, "0" * 64)
    with pytest.raises(ArtifactError, match="no sha256"):
        publish(tmp_path, "../../etc/passwd")


def test_version_is_published_only_as_successor_of_its_parent(tmp_path, versions):
    assert publish(tmp_path, versions[0], parent=4).number == 5
    with pytest.raises(StaleParentError, match="publication 5 came after 4"):
        publish(tmp_path, versions[1], parent=4)
    with pytest.raises(StaleParentError):
        publish(tmp_path, versions[1], parent=0)
    assert publish(tmp_path, versions[0], parent=4).number == 5  # the version is current already
    assert publish(tmp_path, versions[1], parent=5).number == 6


def test_publish_next_requires_a_new_derivation_after_another_publication(tmp_path, versions):
    publisher = Publisher(tmp_path, note="mine")
    before = read_current_version(tmp_path)
    publish(tmp_path, versions[1], note="in between")
    version = read_version(tmp_path, versions[0])
    assert publisher.publish_next(before, version) is None
    after = read_current_version(tmp_path)
    assert (before.number, after.number) == (4, 5)
    publication = publisher.publish_next(after, version)
    assert publication is not None
    assert (publication.number, publication.note) == (6, "mine")
    assert read_publication(tmp_path, 5).note == "in between"


def test_one_of_many_concurrent_successors_is_published(tmp_path, versions):
    def attempt(version: str) -> bool:
        try:
            return publish(tmp_path, version, parent=4).version == version
        except StaleParentError:
            return False

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(attempt, versions[:3])) == 1
    assert current_publication(tmp_path).number == 5


@pytest.mark.parametrize(("written", "read"), [(1, True), (99, False)])
def test_versions_of_older_formats_are_superseded_but_newer_ones_rejected(tmp_path, versions, written, read):
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


@pytest.mark.parametrize("number", [1, 2, 99])
def test_publications_of_other_formats_are_refused(tmp_path, versions, number):
    name = tmp_path / "publications" / "000005.json"
    name.write_bytes(canonical_json(Publication(5, versions[0], "").to_json() | {"format": number}))
    with pytest.raises(FormatVersionError, match=f"has format {number}, this release reads 3; install the release"):
        read_publication(tmp_path, 5)


def test_publication_says_who_published(tmp_path, versions, monkeypatch):
    assert "@" in publish(tmp_path, versions[0]).by
    monkeypatch.setenv("LSR_PROD_BY", "nightly job")
    assert publish(tmp_path, versions[1]).by == "nightly job"


def test_publisher_without_a_name_is_named_by_its_number(monkeypatch):
    monkeypatch.delenv("LSR_PROD_BY", raising=False)
    for error in (KeyError("no entry"), OSError("no entry")):

        def unnamed(error: Exception = error) -> str:
            raise error

        monkeypatch.setattr(getpass, "getuser", unnamed)
        assert publisher_name() == f"{os.getuid()}@{socket.gethostname()}"


def test_version_is_touched_before_it_is_published(tmp_path, versions):
    path = tmp_path / "versions" / f"{versions[0]}.json"
    os.utime(path, (1, 1))
    publish(tmp_path, versions[0])
    assert path.stat().st_mtime > 1


def test_gates_of_the_deployment_see_the_version_and_their_answer_is_published(tmp_path, versions):
    seen: list[Candidate] = []

    def inspect(candidate: Candidate) -> Approval:
        seen.append(candidate)
        return Approval(report="a" * 64)

    publication = publish(tmp_path, versions[0], inspect=inspect)
    assert (publication.report, publication.previous) == ("a" * 64, read_publication(tmp_path, 4).sha)
    publish(tmp_path, versions[1], parent=5, inspect=inspect)
    assert [(one.version.sha, one.current.sha if one.current else "", one.derived) for one in seen] == [
        (versions[0], versions[3], False),
        (versions[1], versions[0], True),
    ]


def test_publication_that_another_writer_makes_at_the_same_moment_is_followed(tmp_path, versions, monkeypatch):
    create = create_publication

    def late(index, publication):
        monkeypatch.setattr(publications, "create_publication", create)
        publish(tmp_path, versions[1])
        return create(index, publication)

    monkeypatch.setattr(publications, "create_publication", late)
    assert publish(tmp_path, versions[0]).number == 6
    assert [read_publication(tmp_path, number).version for number in (5, 6)] == [versions[1], versions[0]]
    monkeypatch.setattr(publications, "create_publication", late)
    assert rollback(tmp_path, 3).version == versions[2]
    assert (current_publication(tmp_path).number, current_publication(tmp_path).note) == (8, "rollback to 3")


def test_rollback_hides_what_was_taken_down_since_and_nothing_is_published_without_an_index(tmp_path, versions):
    taken = take_down(tmp_path, read_version(tmp_path, versions[1]), ["d"], IN_PROCESS)
    write_version(tmp_path, taken)
    publish(tmp_path, taken.sha)
    with pytest.raises(PublicationError):
        publish(tmp_path, versions[0])  # it would restore the document
    publication = rollback(tmp_path, 3)
    assert publication.version not in versions
    assert load_takedowns(tmp_path, read_version(tmp_path, publication.version)) == ["d"]
    assert read_version(tmp_path, publication.version).shards == read_version(tmp_path, versions[2]).shards
    assert read_current_version(tmp_path / "empty") == CurrentVersion(0, None, "", "")
    with pytest.raises(PublicationError, match="no publication 99"):
        rollback(tmp_path, 99)
