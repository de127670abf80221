"""Versions derived from others, written once and kept young."""

import os
import shutil

import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.index import load_version
from lsr_prod.indexing.tombstones import load_takedowns
from lsr_prod.indexing.versions import make_young, take_down, write_version
from tests.indexing.contents import dump
from tests.indexing.corpus import Doc, make_index

CORPUS = {f"d{i}": Doc({1: 1 + i}) for i in range(9)}


@pytest.fixture
def version(tmp_path):
    return make_index(tmp_path, CORPUS, vocabulary_size=4, shards=3)


def test_what_is_taken_down_twice_is_one_version(tmp_path, version):
    one = take_down(tmp_path, version, ["d1", "d2", "nobody"])
    assert one == take_down(tmp_path, take_down(tmp_path, version, ["d2"]), ["nobody", "d1"])
    assert take_down(tmp_path, one, ["d1"]) is one
    assert load_takedowns(tmp_path, one) == ["d1", "d2", "nobody"]
    assert set(dump(tmp_path, one)) == set(CORPUS) - {"d1", "d2"}
    assert load_takedowns(tmp_path, version) == []


def test_a_written_version_and_all_of_it_is_young(tmp_path, version):
    down = take_down(tmp_path, version, ["d1"])
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
    assert load_version(tmp_path, down.sha) == down


def test_a_version_without_its_shards_is_not_written(tmp_path, version):
    shutil.rmtree(tmp_path / "shards" / version.shards[1].sha)
    with pytest.raises(ArtifactError, match="is missing; build the index again"):
        make_young(tmp_path, version)
