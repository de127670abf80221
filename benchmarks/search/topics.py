"""Seeded documents and queries with topics, in chunks: what the search benchmarks search.

A *source* is a distribution over terms. A vector's draws come from its main source, from related ones, and from the
background:

- ``topic_sources``: 60 invented topics of 40 subjects each. A topic's words are drawn from a flattened Zipf law over
  the vocabulary (exponent 0.5) and used by a Zipf law of their own (0.9); a subject's words are some of its topic's,
  used more evenly (0.5); background words follow Zipf's law (1.0), without its steepest part where vectors are long.
  Subjects are popular by a Zipf law (0.4). A document takes half of its draws from one subject, a quarter from its
  topic; a query 65 and 20 %. Words of a subject weigh 1.5, of a topic 0.9, of the background 0.5.
- ``query_sources``: a real query's sparse vector is a source, its weights are the law. A document takes 60 % of its
  draws from one query, 25 % from one or two others, and the rest from the background: terms by document frequency.

So drawn, about 1 % of a million documents of 20 terms share two or more terms with a 7-term query, as with real ones,
and nearly all of the ten best do; a 25-term query shares about one term with a document of 120 in the mean.

Impacts are gamma(3) with mean 60, times the term's weight in its source, cut to 1..255. Chunk i of a seed is always the
same, whatever was drawn before it. Documents come in random order of their sources. Numpy alone: the environments of
the peers read this file too.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["CHUNK", "Chunk", "Mixture", "Sources", "draw_chunks", "draw_distinct", "query_sources", "topic_sources"]

CHUNK = 1 << 16
TOPICS, SUBJECTS = 60, 40  # subjects of each topic
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sources:
    """Distributions over terms, one after the other: S main ones, perhaps topics, and the background last.

    Attributes:
        terms: int64 [n], the sources' words.
        heft: float64 [n], what the impact of a word is multiplied by.
        law: float64 [n], rising: source s lies in (s, s + 1].
        popularity: float64 [S], cumulative shares of the documents that have a source as their main one.
        related: int64 [S], the topic of each main source; None where any other main source may be mixed in.
    """

    terms: npt.NDArray[np.int64]
    heft: Floats
    law: Floats
    popularity: Floats
    related: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.popularity)

    @property
    def background(self) -> int:
        """The last one's number."""
        return int(self.law[-1]) - 1

    def main(self, count: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        """Main sources of so many vectors."""
        return np.searchsorted(self.popularity, generator.random(count)).clip(0, len(self) - 1)

    def pick(self, generator: np.random.Generator, source: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Places in ``terms`` of one draw from each of these sources."""
        places = np.searchsorted(self.law, source + generator.random(source.shape, dtype=np.float32))
        return np.minimum(places, len(self.law) - 1)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of a vector's draws: from its main source, from related ones, the rest background."""

    main: float
    related: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """Vectors of n documents.

    Attributes:
        terms: uint16 [n, t], rising in a row.
        impacts: uint8 [n, t], 1..255.
        labels: int32 [n], the main source.
    """

    terms: npt.NDArray[np.uint16]
    impacts: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int32]


def topic_sources(vocabulary: int, seed: int, *, long: bool = False) -> Sources:
    """The invented topics; with more words for vectors that are long."""
    words, subject_words, shift = (600, 80, 4) if long else (300, 12, 0)
    generator = np.random.default_rng([seed, 0])
    names = generator.permutation(vocabulary)  # rank by popularity -> term id
    topics = names[_pick(zipf(vocabulary, 0.5), generator, (TOPICS, words))]
    places = _pick(zipf(words, 0.5), generator, (TOPICS * SUBJECTS, subject_words))
    subjects = np.take_along_axis(np.repeat(topics, SUBJECTS, axis=0), places, 1)
    parts = [subjects.ravel(), topics.ravel(), names]
    laws = [np.tile(zipf(subject_words, 0.5), len(subjects)), np.tile(zipf(words, 0.9), TOPICS)]
    return _sources(
        np.concatenate(parts),
        np.concatenate([*laws, zipf(vocabulary, 1.0, shift)]),
        np.concatenate([np.full(len(subjects), subject_words), np.full(TOPICS, words), [vocabulary]]),
        np.repeat([1.5, 0.9, 0.5], [len(part) for part in parts]),
        zipf(len(subjects), 0.4),
        len(subjects) + np.repeat(np.arange(TOPICS), SUBJECTS),
    )


def query_sources(
    offsets: npt.NDArray[np.int64], terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], vocabulary: int
) -> Sources:
    """Real query vectors, CSR, as sources; the background is their document frequency."""
    lengths = np.diff(offsets)
    sums = np.repeat(np.add.reduceat(weights.astype(np.float64), offsets[:-1]), lengths)
    frequency = np.bincount(terms, minlength=vocabulary).astype(np.float64)
    seen = np.flatnonzero(frequency)
    mean = np.repeat(np.add.reduceat(weights.astype(np.float64), offsets[:-1]) / lengths, lengths)
    return _sources(
        np.concatenate([terms, seen]),
        np.concatenate([weights / sums, frequency[seen] / frequency.sum()]),
        np.append(lengths, len(seen)),
        np.concatenate([weights / mean, np.full(len(seen), 0.4)]),
        zipf(len(lengths), 0.7),
    )


def draw_chunks(
    sources: Sources, mixture: Mixture, *, documents: int, terms: int, seed: int, first: int = 0
) -> Iterator[Chunk]:
    """Vectors in chunks of ``CHUNK`` documents; memory is that of one chunk.

    Args:
        sources: what they are about.
        mixture: how.
        documents: N.
        terms: distinct terms of each document.
        seed: decides everything.
        first: begin at this chunk.
    """
    for chunk in range(first, -(-documents // CHUNK)):
        generator = np.random.default_rng([seed, 1, chunk])
        yield _draw(sources, mixture, min(CHUNK, documents - chunk * CHUNK), terms, generator)


def _draw(sources: Sources, mixture: Mixture, rows: int, terms: int, generator: np.random.Generator) -> Chunk:
    labels = sources.main(rows, generator)
    places = draw_distinct(sources, mixture, labels, terms, generator)
    impacts = generator.gamma(3.0, 20.0, places.shape) * sources.heft[places]
    found = sources.terms[places].astype(np.uint16)
    order = np.argsort(found, axis=1)
    sorted_impacts = np.take_along_axis(impacts, order, 1).clip(1, 255).astype(np.uint8)
    return Chunk(np.take_along_axis(found, order, 1), sorted_impacts, labels.astype(np.int32))


def draw_distinct(
    sources: Sources, mixture: Mixture, labels: npt.NDArray[np.int64], terms: int, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Places [n, terms] in ``sources.terms``: the first draws of each row that are different terms."""
    found = np.empty((len(labels), terms), np.int64)
    left = np.arange(len(labels))
    draws = 2 * terms + 8
    while len(left):
        places = sources.pick(generator, _choose(sources, mixture, labels[left], draws, generator))
        kept, whole = _first_distinct(sources.terms[places], terms)
        found[left[whole]] = np.take_along_axis(places, kept, 1)[whole]
        left = left[~whole]
        draws *= 2
    return found


def _choose(
    sources: Sources, mixture: Mixture, labels: npt.NDArray[np.int64], draws: int, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """The source of each draw [n, draws]."""
    dice = generator.random((len(labels), draws), dtype=np.float32)
    if sources.related is None:
        others = generator.integers(0, len(sources), (len(labels), 2))
        both = generator.integers(0, 2, len(labels), dtype=bool)  # or the first alone
        second = both[:, None] & generator.integers(0, 2, dice.shape, dtype=bool)
        related = np.where(second, others[:, 1:], others[:, :1])
    else:
        related = np.broadcast_to(sources.related[labels][:, None], dice.shape)
    chosen = np.where(dice < mixture.main, labels[:, None], related)
    return np.where(dice < mixture.main + mixture.related, chosen, sources.background)


def _first_distinct(terms: npt.NDArray[np.int64], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Columns [n, count] of each row's first ``count`` different values, and whether the row has that many."""
    columns = np.arange(terms.shape[1], dtype=np.uint32)
    keys = np.sort(terms.astype(np.uint32) << np.uint32(16) | columns, axis=1)
    column = keys & np.uint32(0xFFFF)
    values = keys >> np.uint32(16)
    column[:, 1:][values[:, 1:] == values[:, :-1]] = 0xFFFF
    kept = np.sort(column, axis=1)[:, :count]
    whole = kept[:, -1] != 0xFFFF
    return np.where(whole[:, None], kept, 0).astype(np.int64), whole


def zipf(count: int, exponent: float, shift: int = 0) -> Floats:
    """Shares of ``count`` ranks."""
    shares = 1 / (np.arange(1, count + 1) + shift) ** exponent
    return shares / shares.sum()


def _pick(shares: Floats, generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Ranks, drawn with these shares."""
    return np.searchsorted(np.cumsum(shares), generator.random(shape)).clip(0, len(shares) - 1)


def _sources(
    terms: npt.NDArray[np.int64],
    shares: Floats,
    lengths: npt.NDArray[np.int64],
    heft: Floats,
    popularity: Floats,
    related: npt.NDArray[np.int64] | None = None,
) -> Sources:
    ends = np.cumsum(lengths)
    total = np.cumsum(shares)
    # Each source's shares sum to 1 but for rounding, which must not carry words into the next source.
    before = np.repeat(np.append(0.0, total[ends[:-1] - 1]), lengths)
    law = np.repeat(np.arange(len(lengths)), lengths) + np.clip(total - before, 0.0, 1.0)
    law[ends - 1] = np.arange(1, len(lengths) + 1)
    return Sources(terms, heft, law, np.cumsum(popularity), related)
