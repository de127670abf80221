"""Versions derived from others, and how one is written."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lsr_prod.errors import ArtefactError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.formats.index import SHARD_FILE, IndexVersion
from lsr_prod.indexing.tombstones import as_ids, hide, load_takedowns, save_takedowns
from lsr_prod.storage import Store

__all__ = ["take_down", "write_version"]


def take_down(index: Path, version: IndexVersion, ids: Iterable[str]) -> IndexVersion:
    """The version without some documents, whose ids are on its list from now on; nothing changes for those that are.

    Raises:
        ArtefactError: a shard or the list is missing or damaged.
    """
    before = load_takedowns(index, version)
    new = sorted(set(ids) - set(before))
    if not new:
        return version
    gone = as_ids(new)
    pairs = zip(version.shards, version.tombstones, strict=True)
    tombstones = tuple(hide(index, shard, there, gone) for shard, there in pairs)
    return replace(version, tombstones=tombstones, takedowns=save_takedowns(index, [*before, *new]))


def write_version(index: Path, version: IndexVersion) -> None:
    """Write ``versions/<sha>.json`` once, and make all that it names young: nothing of it is garbage.

    Raises:
        ArtefactError: a shard is missing.
    """
    store = Store(str(index))
    for shard in version.shards:
        try:
            os.utime(index / "shards" / shard.sha / SHARD_FILE)
        except FileNotFoundError as error:
            raise ArtefactError(f"shard {shard.sha} is missing; build the index again") from error
    for file in [*(one.file for one in version.tombstones if one), *([version.takedowns] if version.takedowns else [])]:
        store.refresh(file.path)
    name = f"versions/{version.sha}.json"
    if not store.put_new(name, canonical_json(version.to_json()) + b"\n"):
        store.refresh(name)
