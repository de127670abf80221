"""Queries over arrays of random content: ``python -m tests.search.corrupt FOLDER ROUNDS [LIBRARY]``.

LIBRARY has the kernels, compiled with sanitizers, which end the process at an access outside an array. Every query is
asked with every instruction set of the CPU, and the answers must be equal. Prints how many queries were refused as
damaged and how many answered.
"""

import importlib.util
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if len(sys.argv) > 3:  # before the first import of the kernels
    spec = importlib.util.spec_from_file_location("lsr_prod.search.kernels.native", sys.argv[3])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["lsr_prod.search.kernels.native"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["lsr_prod.search.kernels.native"])

from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.kernels import native
from lsr_prod.search.search_result import Hit, QueryTerm
from lsr_prod.storage.formats.shard_format import BATCH_ROWS, FORWARD_ARRAYS, MATCHING_ARRAYS, WINDOW, ImpactArrays
from lsr_prod.storage.publications import current_publication
from tests.indexing.corpus import Doc, make_index
from tests.search.test_match import topics

V = 300
DAMAGED, UNVERIFIED, INVALID = -1, 2, -3
PAGE, HEAD = 1 << 14, 128
SETS = [name for name in ("plain", "avx2", "avx512") if native.choose_instructions(name)]
SHARES = (1.0, 1.0, 0.7, 0.0, math.nan)  # values of scan_share
Batches = list[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class Held:
    """The arrays of a shard in the kernels, and the flags of what was verified."""

    native: object
    arrays: ImpactArrays
    terms: npt.NDArray[np.bool_]
    pages: bytearray
    batches: Batches
    verified: bytearray

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.arrays.forward_offsets) - 1

    def verify(self) -> None:
        """Flag everything as verified."""
        self.terms[:] = True
        self.pages[:] = b"\1" * len(self.pages)
        self.verified[:] = b"\1" * len(self.verified)

    def forget(self, rng: np.random.Generator) -> None:
        """Flag random parts as verified."""
        self.terms[:] = rng.random(len(self.terms)) < 0.9
        self.pages[:] = (rng.random(len(self.pages)) < 0.7).astype(np.uint8).tobytes()
        self.verified[:] = (rng.random(len(self.verified)) < 0.5).astype(np.uint8).tobytes()


def corrupt(array: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return a copy, with random content in some or all items of every fifth array."""
    array = np.array(array)
    if len(array) and rng.random() < 0.2:
        places = rng.integers(0, len(array), rng.choice([1, 3, len(array)]))
        limits = np.iinfo(array.dtype)
        near = rng.integers(0, 3, len(places)) + array[places].astype(np.int64) - 1
        wild = rng.integers(limits.min, limits.max, len(places), dtype=array.dtype, endpoint=True)
        array[places] = np.where(rng.random(len(places)) < 0.5, near.astype(array.dtype), wild)
    return array


def hold(arrays: ImpactArrays, batches: Batches) -> Held:
    """Give arrays to the kernels."""
    terms, first, pages = np.ones(len(arrays.term_runs) - 1, bool), [], 1
    for name in FORWARD_ARRAYS:
        first.append(pages)
        pages += (HEAD + getattr(arrays, name).nbytes) // PAGE + 1
    flags = bytearray(b"\1" * pages)
    matching = tuple(getattr(arrays, name) for name in MATCHING_ARRAYS)
    forward = tuple(getattr(arrays, name) for name in FORWARD_ARRAYS)
    return Held(
        native.Shard(matching, forward, terms, flags, tuple((place, HEAD) for place in first), V),
        arrays,
        terms,
        flags,
        batches,
        bytearray(len(batches)),
    )


def damage(held: Held, rng: np.random.Generator) -> Held:
    """Return the arrays of a shard, corrupted."""
    arrays = {field.name: corrupt(getattr(held.arrays, field.name), rng) for field in fields(held.arrays)}
    batches = [(rows, corrupt(offsets, rng), np.array(text)) for rows, offsets, text in held.batches]
    return hold(ImpactArrays(**arrays), batches)


def large() -> dict[str, Doc]:
    """Return documents of two windows, with runs that are bitmaps."""
    rng, documents = np.random.default_rng(4), WINDOW + 700
    shares = np.array([1, 0.5, 0.07, 0.06, 0.001, *[0.002] * 20])
    corpus = {}
    for i, chosen in enumerate(rng.random((documents, len(shares))) < shares):
        terms = np.flatnonzero(chosen)
        impacts = np.sort(rng.integers(1, 256, len(terms)))[::-1]
        text = "fox " * int(rng.integers(0, 3)) if i % 10 else "owl"
        corpus[f"d{i:06d}"] = Doc(dict(zip(terms.tolist(), impacts.tolist(), strict=True)), text)
    return corpus


def open_shards(folder: Path) -> list[Held]:
    """Build indexes and return their shards."""
    held = []
    for name, corpus in (("small", topics(400, 8)), ("other", topics(900, 1)), ("large", large())):
        make_index(folder / name, corpus, vocabulary_size=V, bm25=True, shards=1 + (name == "other"))
        snapshot = Snapshot(folder / name, current_publication(folder / name), verify=False)
        for reader in snapshot.readers.values():
            batches = [
                (rows, np.frombuffer(offsets, np.int64)[: rows + 1], np.frombuffer(text, np.uint8))
                for rows, offsets, text in reader.shard.documents.native[0]
            ]
            held.append(hold(reader.shard.arrays, batches))
    return held


class Dice:
    """Random queries."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def vector(self, held: Held, most: int = 40) -> tuple[Any, Any]:
        """Return distinct terms, of which few do not exist, and their weights; terms of many documents are frequent."""
        size = len(held.terms)
        ids = self.rng.choice(size, int(self.rng.integers(1, most)), replace=False).astype(np.int32)
        if self.rng.random() < 0.6:
            ids = np.unique(np.concatenate([ids, np.arange(self.rng.integers(1, 6))])).astype(np.int32)
        if self.rng.random() < 0.02:
            ids[0] = self.rng.choice([-1, size, 1 << 30])
        weights = self.rng.exponential(size=len(ids)).astype(np.float32) * self.rng.choice([1, 1e-40, 1e30])
        return ids, weights.astype(np.float32)

    def mask(self, held: Held) -> Any:
        """Return the documents that may be found; None: all."""
        return (self.rng.random(held.documents) < 0.5).astype(np.uint8) if self.rng.random() < 0.5 else None

    def one(self, *values: Any) -> Any:
        """Return one of some values."""
        return values[int(self.rng.integers(0, len(values)))]


def match(dice: Dice, shards: list[Held]) -> Callable[[], Any]:
    """Prepare a query to one shard."""
    held = dice.one(*shards)
    ids, weights = dice.vector(held)
    counted = (dice.rng.random(len(ids)) < dice.one(1.0, 0.5)).astype(np.uint8)
    required, k, dk, floor = dice.one(1, 1, 2, 3), dice.one(0, 1, 10, 100, 20_000), dice.one(1, 64), dice.one(0.0, 5.0)
    deadline, allowed, marked = dice.one(0.0, 1e18), dice.mask(held), dice.one(True, False)
    share = dice.one(*SHARES)

    def ask() -> Any:
        marks = np.zeros(held.documents, np.uint8) if marked else None
        found = native.match(
            held.native, ids, weights, counted, required, k, dk, floor, share, allowed, deadline, marks
        )
        state, matched, _, ordinals, scores, overlaps = found
        assert all(0 <= ordinal < held.documents for ordinal in ordinals)
        if state == 0:
            assert sorted(zip([-score for score in scores], ordinals, strict=True)) == list(
                zip([-score for score in scores], ordinals, strict=True)
            )
            assert len(ordinals) == len(set(ordinals)) == len(overlaps) <= min(k, matched)
        return found if state == 0 or state == UNVERIFIED else (state,), None if marks is None else marks.tobytes()

    return ask


def impacts(dice: Dice, shards: list[Held]) -> Callable[[], Any]:
    """Prepare a look-up of impacts."""
    held = dice.one(*shards)
    term, documents = int(dice.vector(held)[0][0]), dice.rng.integers(0, held.documents, 20)
    if dice.rng.random() < 0.05:
        documents[3] = dice.one(-1, held.documents, 1 << 40)

    def ask() -> Any:
        found = np.zeros(len(documents), np.uint8)
        state = native.impacts(held.native, term, documents, found)
        return (state, found.tolist()) if state == 0 else (state,)

    return ask


def score(dice: Dice, shards: list[Held]) -> Callable[[], Any]:
    """Prepare the scores of some documents."""
    held = dice.one(*shards)
    ids, weights = dice.vector(held)
    documents, dk = dice.rng.integers(0, held.documents, 20), dice.one(1, 64)
    if dice.rng.random() < 0.05:
        documents[3] = dice.one(-1, held.documents, 1 << 40)
    forward = [getattr(held.arrays, name) for name in FORWARD_ARRAYS]

    def ask() -> Any:
        scores, counts = np.zeros(len(documents), np.float32), np.zeros(len(documents), np.uint16)
        state = native.score(*forward, documents, dk, ids, weights, V, scores, counts)
        return (state, scores.tolist(), counts.tolist()) if state == 0 else (state,)

    return ask


def version(dice: Dice, shards: list[Held]) -> object:
    """Return a version of the shards."""
    members = tuple(
        (each.native, 10 + number, dice.mask(each), each.batches, each.verified) for number, each in enumerate(shards)
    )
    return native.Version(members, BATCH_ROWS)


def search(dice: Dice, shards: list[Held]) -> Callable[[], Any]:
    """Prepare a query to all shards."""
    held = version(dice, shards)
    ids, weights = dice.vector(shards[0])
    ids[dice.rng.random(len(ids)) < 0.1] = -1
    names = tuple(f"t{term}" for term in ids.tolist())
    options = dice.one(1, 1, 2), dice.one(0, 1, 10, 1000), dice.one(0, 3), dice.one(1, 64), dice.one(0.0, 5.0)
    options = *options, dice.one(*SHARES)
    ends = 0.03125, dice.one(1e38, 1.0), dice.one(0.0, 1e18), Hit, QueryTerm

    def ask() -> Any:
        try:
            state, number, found, terms = native.search(held, ids, weights, names, *options, *ends)
        except UnicodeDecodeError:  # offsets of ids inside a character
            return (DAMAGED,)
        assert len(terms) == len(names)
        if state == 0:
            assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
        elif state == UNVERIFIED:
            assert all(0 <= ordinal < shards[number - 10].documents for ordinal in found)
        return (state, number, found) if state in (0, UNVERIFIED) else (state,)

    return ask


def search_batch(dice: Dice, shards: list[Held]) -> Callable[[], Any]:
    """Prepare a batch of queries to all shards."""
    held = version(dice, shards)
    vectors = [dice.vector(shards[0]) for _ in range(3)]
    offsets = np.cumsum([0, *(len(ids) for ids, _ in vectors)]).astype(np.int64)
    ids, weights = (np.concatenate(parts) for parts in zip(*vectors, strict=True))
    required = np.minimum(np.arange(100) // dice.one(2, 100) + 1, 100).astype(np.int64)
    k, dk, floor, largest = dice.one(0, 1, 10, 1000), dice.one(1, 64), dice.one(0.0, 5.0), dice.one(1e38, 1.0)
    masks = None if dice.rng.random() < 0.5 else tuple(dice.mask(each) for each in shards)
    starts = np.cumsum([0, *(each.documents for each in shards)])[:-1].astype(np.int64)
    size = max(len(each.terms) for each in shards)
    options = size, floor, dice.one(*SHARES), 0.03125, largest, 0.0, masks

    def ask() -> Any:
        numbers, documents = np.zeros(3, np.int64), np.full(3 * k, -1, np.int64)
        scores, counts = np.zeros(3 * k, np.float32), np.zeros(3 * k, np.uint16)
        outputs = numbers, documents, scores, counts, starts
        state, query, number, found = native.search_batch(
            held, offsets, ids, weights, required, 0, k, dk, *options, *outputs
        )
        if state == UNVERIFIED:
            assert all(0 <= ordinal < shards[number - 10].documents for ordinal in found)
        everything = (state, query, found, *(each.tolist() for each in outputs))
        return everything if state in (0, UNVERIFIED) else (state, query)

    return ask


def ask_all(ask: Callable[[], Any], shards: list[Held], states: list[Any]) -> int:
    """Ask with all instruction sets, before and after everything was verified; return the last state."""
    last = 0
    for state in states:
        answers = []
        for name in SETS:
            assert native.choose_instructions(name) == name
            for each, (terms, pages, verified) in zip(shards, state, strict=True):
                each.terms[:], each.pages[:], each.verified[:] = terms, pages, verified
            answers.append(ask())
        assert all(answer == answers[0] for answer in answers), answers
        first: Any = answers[0]
        while isinstance(first, tuple):
            first = first[0]
        last = first
    return last


def main(folder: str, rounds: int) -> None:
    """Ask queries."""
    dice, whole = Dice(9), open_shards(Path(folder))
    ids, ones = np.arange(V, dtype=np.int32), np.ones(V, np.uint8)
    probes = [(hold(each.arrays, each.batches).native, required) for each in whole for required in (1, 2)]

    def probe() -> list[Any]:
        return [
            native.match(each, ids, ones.astype(np.float32), ones, required, 3, 64, 0.0, 1.0, None, 0.0, None)
            for each, required in probes
        ]

    right, ended = probe(), Counter[str]()
    for number in range(rounds):
        some = [whole[i] for i in dice.rng.choice(len(whole), int(dice.rng.integers(1, 4)), replace=False)]
        shards = [damage(each, dice.rng) for each in some]
        states = []
        for forgotten in (True, False):
            for each in shards:
                each.forget(dice.rng) if forgotten else each.verify()
            states.append([(each.terms.copy(), bytes(each.pages), bytes(each.verified)) for each in shards])
        ask = dice.one(match, match, impacts, score, search, search_batch)(dice, shards)
        last = ask_all(ask, shards, states)
        assert last != UNVERIFIED
        ended["answered" if last >= 0 else "refused"] += 1
        if number % 10 == 0:
            assert probe() == right, "an earlier query left something in the working memory"
    print(ended["refused"], ended["answered"])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
