"""Derive a version with takedowns, write a version, and protect it from garbage collection."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lsr_prod.cluster.workers import Workers
from lsr_prod.errors import ArtifactError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.digest import FileDigest, record_bytes
from lsr_prod.formats.index import SHARD_FILE, IndexVersion
from lsr_prod.indexing.tombstones import as_ids, hide_everywhere, load_takedowns, save_takedowns
from lsr_prod.storage import Store, as_store, is_remote


def take_down(index: Store | Path, version: IndexVersion, ids: Iterable[str], workers: Workers) -> IndexVersion:
    """Return the version with documents hidden and their ids on its list of takedowns; known ids change nothing."""
    before = load_takedowns(index, version)
    new = sorted(set(ids) - set(before))
    if not new:
        return version
    tombstones = hide_everywhere(index, version.shards, version.tombstones, as_ids(new), workers)
    return replace(version, tombstones=tombstones, takedowns=save_takedowns(index, [*before, *new]))


def write_version(index: Store | Path, version: IndexVersion) -> None:
    """Write ``versions/<sha>.json`` unless it exists, and touch all files of the version."""
    as_store(index).put_new(_name(version.sha), record_bytes(version.to_json()))
    touch_version(index, version)


def touch_version(index: Store | Path, version: IndexVersion) -> None:
    """Touch a version and all files and folders that it names, so that garbage collection keeps them for now.

    In an object store the version is enough: garbage collection keeps what a young version names.
    """
    store, lists = as_store(index), [*version.tombstones, version.takedowns]
    names = [f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards]
    names += [(one if isinstance(one, FileDigest) else one.file).path for one in lists if one]
    names.append(f"bundles/{version.bundle_digest}/{BUNDLE_FILE}")
    for name in [*(() if is_remote(store.uri) else names), _name(version.sha)]:
        try:
            store.touch(name)
        except FileNotFoundError as error:
            raise ArtifactError(f"{store.uri}/{name} is missing; build the index again") from error


def version_format(index: Store | Path, sha: str) -> int:
    """Return the format number of a version, also of one that this release cannot read."""
    return int(json.loads(as_store(index).get(_name(sha)) or b"")["format"])


def _name(sha: str) -> str:
    return f"versions/{sha}.json"
