"""Queries over arrays of random content: ``python -m tests.search.corrupt FOLDER ROUNDS [LIBRARY]``.

LIBRARY has the kernels, compiled with sanitizers, which end the process at an access outside an array. Prints how many
queries were refused as damaged and how many answered.
"""

import importlib.util
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np

if len(sys.argv) > 3:  # before the first import of the kernels
    spec = importlib.util.spec_from_file_location("lsr_prod.search.kernels.native", sys.argv[3])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["lsr_prod.search.kernels.native"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["lsr_prod.search.kernels.native"])

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.shard import ImpactArrays
from lsr_prod.search.shard.open_shard import ForwardCopy, OpenShard
from lsr_prod.search.shard.postings import Postings, ShardQuery
from lsr_prod.search.snapshot import Snapshot
from lsr_prod.storage.publications import current_publication
from tests.indexing.corpus import make_index
from tests.search.test_match import topics

V = 300
EVERYTHING = (np.arange(V, dtype=np.int32), np.ones(V, np.float32), np.ones(V, np.uint8))


def corrupt(arrays: ImpactArrays, rng: np.random.Generator) -> ImpactArrays:
    """Return the arrays with random content in some or all values of some arrays."""
    found = {}
    for field in fields(arrays):
        array = np.array(getattr(arrays, field.name))
        if len(array) and rng.random() < 0.2:
            places = rng.integers(0, len(array), rng.choice([1, 3, len(array)]))
            limits = np.iinfo(array.dtype)
            near = rng.integers(0, 3, len(places)) + array[places].astype(np.int64) - 1
            wild = rng.integers(limits.min, limits.max, len(places), dtype=array.dtype, endpoint=True)
            array[places] = np.where(rng.random(len(places)) < 0.5, near.astype(array.dtype), wild)
        found[field.name] = array
    return ImpactArrays(**found)


def main(folder: str, rounds: int) -> None:
    rng = np.random.default_rng(9)
    shards = []
    for n, block_size, order in ((400, 8, "id"), (400, 300, "content"), (900, 1, "id"), (300, 64, "content")):
        index = Path(folder) / f"{n}-{block_size}"
        make_index(index, topics(n, block_size), vocabulary_size=V, block_size=block_size, order=order)
        snapshot = Snapshot(index, current_publication(index), verify=False)
        shards.append(snapshot.readers[0].shard)
    whole = [shard.arrays for shard in shards]
    probe = shards[0].postings
    expected = probe.match(ShardQuery(*EVERYTHING, required=1, k=3), floor=0.0)
    right = (expected.ordinals, expected.scores)
    refused = answered = 0
    for number in range(rounds):
        shard, arrays = shards[number % len(shards)], whole[number % len(shards)]
        try:
            replace_arrays(shard, corrupt(arrays, rng))
            ask(shard, rng)
            answered += 1
        except ArtifactError:
            refused += 1
        found = probe.match(ShardQuery(*EVERYTHING, required=1, k=3), floor=0.0)
        assert (found.ordinals, found.scores) == right, "an earlier query left scores in the working memory"
    print(refused, answered)


def replace_arrays(shard: OpenShard, arrays: ImpactArrays) -> None:
    manifest = shard.manifest
    shard.postings = Postings(shard.files, arrays, documents=manifest.documents, block_size=manifest.block_size)
    shard.forward = ForwardCopy(shard.files, arrays, vocabulary_size=V)


def ask(shard: OpenShard, rng: np.random.Generator) -> None:
    ids = rng.choice(V, int(rng.integers(1, 40)), replace=False).astype(np.int32)
    weights = rng.exponential(size=len(ids)).astype(np.float32)
    mask = (rng.random(shard.manifest.documents) < 0.5).astype(np.uint8)
    query = ShardQuery(
        ids,
        weights,
        np.ones(len(ids), np.uint8),
        required=int(rng.integers(1, 4)),
        k=int(rng.choice([0, 1, 10, 1000])),
        exhaustive=bool(rng.random() < 0.3),
        deadline=1e18 if rng.random() < 0.3 else None,
    )
    allowed = mask if rng.random() < 0.5 else None
    shard.postings.match(query, floor=float(rng.choice([0.0, 5.0])), allowed=allowed)
    ordinals = rng.integers(0, shard.manifest.documents, 20)
    shard.forward.score(ordinals, ids, weights, dk=int(rng.choice([1, 64])))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
