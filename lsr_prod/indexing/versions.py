"""Versions derived from others, and how one is written."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.digest import FileDigest, canonical_json
from lsr_prod.formats.index import SHARD_FILE, IndexVersion
from lsr_prod.indexing.tombstones import as_ids, hide_documents, load_takedowns, save_takedowns
from lsr_prod.storage import Store

__all__ = ["make_young", "take_down", "write_version", "written_in"]


def take_down(index: Path, version: IndexVersion, ids: Iterable[str]) -> IndexVersion:
    """The version without some documents, whose ids are on its list from now on; nothing changes for those that are.

    Raises:
        ArtifactError: a shard or the list is missing or damaged.
    """
    before = load_takedowns(index, version)
    new = sorted(set(ids) - set(before))
    if not new:
        return version
    gone = as_ids(new)
    pairs = zip(version.shards, version.tombstones, strict=True)
    tombstones = tuple(hide_documents(index, shard, there, gone) for shard, there in pairs)
    return replace(version, tombstones=tombstones, takedowns=save_takedowns(index, [*before, *new]))


def write_version(index: Path, version: IndexVersion) -> None:
    """Write ``versions/<sha>.json`` once.

    Raises:
        ArtifactError: a shard or a list is missing.
    """
    Store(str(index)).put_new(_name(version.sha), canonical_json(version.to_json()) + b"\n")
    make_young(index, version)


def make_young(index: Path, version: IndexVersion) -> None:
    """Make a version and all that it names as young as if they were written now, so that nobody collects them.

    Raises:
        ArtifactError: one of them is missing.
    """
    lists = [*version.tombstones, version.takedowns]
    names = [f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards]
    names += [(one if isinstance(one, FileDigest) else one.file).path for one in lists if one]
    for name in [*names, f"bundles/{version.bundle_digest}/{BUNDLE_FILE}", _name(version.sha)]:
        try:
            os.utime(index / name)  # by the clock of the disk
        except FileNotFoundError as error:
            raise ArtifactError(f"{index / name} is missing; build the index again") from error


def written_in(index: Path, sha: str) -> int:
    """The format of a version, whatever it is."""
    return int(json.loads((index / _name(sha)).read_bytes())["format"])


def _name(sha: str) -> str:
    return f"versions/{sha}.json"
