import json
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError, PublicationError
from lsr_prod.storage.formats.digests import FileDigest, canonical_json
from lsr_prod.storage.formats.index_format import IndexVersion, Publication, ShardManifest, publication_name
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.publications import current_publication

SHARD = ShardManifest("a" * 64, 3, 7, "base", {"impacts": 10}, (FileDigest("docs.arrow", "c" * 64, 5),))
VERSION = IndexVersion((SHARD,), "b" * 64, "d" * 64, 0.3, 20, "table", 4, ("text",), ("text",))


def _write(index: Path, version: IndexVersion) -> Path:
    path = index / "versions" / f"{version.sha}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(canonical_json(version.to_json()))
    return path


def test_version_round_trip_and_digest_check(tmp_path: Path) -> None:
    path = _write(tmp_path, VERSION)
    assert read_version(tmp_path, VERSION.sha) == VERSION
    assert VERSION.documents == 3
    path.write_text(path.read_text().replace('"documents":3', '"documents":4'))
    with pytest.raises(DigestMismatchError):
        read_version(tmp_path, VERSION.sha)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "a" * 63])
def test_name_that_is_no_sha256_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtifactError):
        read_version(tmp_path, name)
    with pytest.raises(ArtifactError):
        ShardManifest.from_json({**SHARD.to_json(), "sha": name})


def test_current_publication_has_the_largest_number(tmp_path: Path) -> None:
    with pytest.raises(PublicationError):
        current_publication(tmp_path)
    folder = tmp_path / "publications"
    folder.mkdir()
    for number in (1, 2, 10, 1_000_000):
        publication = Publication(number, "e" * 64, "2026-01-01T00:00:00Z")
        (folder / publication_name(number)).write_text(json.dumps(publication.to_json()))
    (folder / ".000099.json.tmp").write_text("{")
    assert current_publication(tmp_path).number == 1_000_000
