"""Gates that a version passes before it is published."""

import shutil
from dataclasses import replace

import pytest

from lsr_prod.errors import DigestMismatchError, PublicationError
from lsr_prod.indexing import delete_documents
from lsr_prod.indexing.publish import Candidate, check_files, check_takedowns
from lsr_prod.storage.index_versions import read_version
from tests.indexing.corpus import Doc, make_index
from tests.indexing.publishing import publish


@pytest.fixture
def versions(tmp_path):
    return [make_index(tmp_path, {"d": Doc({1: 1 + i})}, vocabulary_size=4).sha for i in range(2)]


def test_damaged_tombstones_are_rejected(tmp_path, versions):
    made = delete_documents(tmp_path, ["d"])
    publish(tmp_path, versions[0], parent=made.publication.number)
    file = read_version(tmp_path, made.publication.version).tombstones[0].file
    (tmp_path / file.path).write_bytes(b"x" * file.size)
    with pytest.raises(DigestMismatchError, match="tombstones"):
        publish(tmp_path, made.publication.version)


def test_damaged_takedowns_are_rejected(tmp_path, versions):
    version = read_version(tmp_path, delete_documents(tmp_path, ["d"]).publication.version)
    file = tmp_path / version.takedowns.path
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(DigestMismatchError, match="takedowns"):
        check_files(Candidate(tmp_path, version, version, True))


def test_bundle_is_read_again_only_if_it_is_new(tmp_path, versions):
    current, version = (read_version(tmp_path, sha) for sha in versions)
    folder = tmp_path / "bundles" / version.bundle_digest
    vocabulary = folder / "vocabulary.json"
    vocabulary.write_bytes(b"x" * vocabulary.stat().st_size)
    check_files(Candidate(tmp_path, version, current, True))
    for other in (None, replace(current, bundle_digest="0" * 64)):
        with pytest.raises(DigestMismatchError, match=r"vocabulary\.json"):
            check_files(Candidate(tmp_path, version, other, True))


def test_bundle_under_the_name_of_another_is_rejected(tmp_path, versions):
    current, version = (read_version(tmp_path, sha) for sha in versions)
    renamed = replace(version, bundle_digest="0" * 64)
    shutil.copytree(tmp_path / "bundles" / version.bundle_digest, tmp_path / "bundles" / renamed.bundle_digest)
    with pytest.raises(PublicationError, match=f"is not {'0' * 64}"):
        check_files(Candidate(tmp_path, renamed, current, True))


def test_files_of_current_and_verified_shards_are_not_read_again(tmp_path, versions):
    current, version = (read_version(tmp_path, sha) for sha in versions)
    path = tmp_path / "shards" / version.shards[0].sha / "docs.arrow"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(DigestMismatchError, match=r"docs\.arrow"):
        check_files(Candidate(tmp_path, version, current, True))
    check_files(Candidate(tmp_path, version, current, True, {shard.sha: shard for shard in version.shards}))
    check_files(Candidate(tmp_path, version, version, True))


def test_takedowns_are_checked_against_the_current_version(tmp_path, versions):
    hidden = read_version(tmp_path, delete_documents(tmp_path, ["d"]).publication.version)
    version = read_version(tmp_path, versions[1])
    with pytest.raises(PublicationError, match="would bring back 1 document"):
        check_takedowns(Candidate(tmp_path, version, hidden, False))
    check_takedowns(Candidate(tmp_path, version, hidden, True))
    check_takedowns(Candidate(tmp_path, version, None, False))
