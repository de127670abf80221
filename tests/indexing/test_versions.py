"""Versions derived from others; writing a version touches all its files."""

import os
import shutil

import pytest

from lsr_prod.cluster.workers import IN_PROCESS
from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.publish import take_down, touch_version, write_version
from lsr_prod.indexing.tombstones import load_takedowns
from lsr_prod.storage.index_versions import read_version
from tests.indexing.contents import dump
from tests.indexing.corpus import Doc, make_index

CORPUS = {f"d{i}": Doc({1: 1 + i}) for i in range(9)}


@pytest.fixture
def version(tmp_path):
    return make_index(tmp_path, CORPUS, vocabulary_size=4, shards=3)


def test_repeated_takedown_gives_the_same_version(tmp_path, version):
    one = take_down(tmp_path, version, ["d1", "d2", "unknown"], IN_PROCESS)
    assert one == take_down(tmp_path, take_down(tmp_path, version, ["d2"], IN_PROCESS), ["unknown", "d1"], IN_PROCESS)
    assert take_down(tmp_path, one, ["d1"], IN_PROCESS) is one
    assert load_takedowns(tmp_path, one) == ["d1", "d2", "unknown"]
    assert set(dump(tmp_path, one)) == set(CORPUS) - {"d1", "d2"}
    assert load_takedowns(tmp_path, version) == []


def test_write_version_touches_all_files_of_the_version(tmp_path, version):
    down = take_down(tmp_path, version, ["d1"], IN_PROCESS)
    write_version(tmp_path, down)
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    write_version(tmp_path, down)
    manifests = [tmp_path / "shards" / shard.sha / "shard.json" for shard in down.shards]
    lists = [path for folder in ("tombstones", "takedowns") for path in (tmp_path / folder).iterdir()]
    bundle = tmp_path / "bundles" / down.bundle_digest / "bundle.json"
    young = [*manifests, *lists, bundle, tmp_path / "versions" / f"{down.sha}.json"]
    assert len(young) == 7
    assert all(path.stat().st_mtime > 1 for path in young)
    assert (tmp_path / "versions" / f"{version.sha}.json").stat().st_mtime == 1
    assert read_version(tmp_path, down.sha) == down


def test_touch_version_rejects_a_version_with_a_missing_shard(tmp_path, version):
    shutil.rmtree(tmp_path / "shards" / version.shards[1].sha)
    with pytest.raises(ArtifactError, match="is missing; build the index again"):
        touch_version(tmp_path, version)
