"""Read the documents of an index without a Searcher: the document-ordered arrays without the tombstones."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from lsr_prod.indexing.tombstones import load_takedowns, load_tombstones, read_ids
from lsr_prod.storage.formats.index_format import IndexVersion
from lsr_prod.storage.formats.shard_format import array_name
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.publications import current_publication

__all__ = ["current", "dump", "takedowns"]


def current(index: Path) -> IndexVersion:
    """Return the current version."""
    return read_version(index, current_publication(index).version)


def takedowns(index: Path) -> list[str]:
    """Return the ids that are taken down."""
    return load_takedowns(index, current(index))


def dump(index: Path, version: IndexVersion | None = None) -> dict[str, tuple[tuple[tuple[int, int], ...], str | None]]:
    """Return (term, impact) pairs, heaviest first, and the text of every document that can be found."""
    version = version or current(index)
    found = {}
    for shard, there in zip(version.shards, version.tombstones, strict=True):
        folder = index / "shards" / shard.sha
        gone = set(load_tombstones(index, shard, there).tolist()) if there else set()
        offsets, terms, impacts = (
            np.load(folder / array_name(f"forward_{name}")) for name in ("offsets", "terms", "impacts")
        )
        with pa.OSFile(str(folder / "docs.arrow")) as file:
            texts = pa.ipc.open_file(file).read_all()["text"].to_pylist()
        for ordinal, doc_id in enumerate(read_ids(index, shard).to_pylist()):
            if ordinal in gone:
                continue
            assert doc_id not in found, f"{doc_id} occurs twice"
            row = slice(*offsets[ordinal : ordinal + 2])
            pairs = tuple(zip(terms[row].tolist(), impacts[row].tolist(), strict=True))
            found[doc_id] = (pairs, texts[ordinal])
    assert len(found) == version.documents
    return found
