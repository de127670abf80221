"""Texts that queries and clusters have clicked: documents with equal normalized texts are duplicates."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod_contrib.click_sets.clusters import Clusters
from lsr_prod_contrib.click_sets.lexical import document_texts
from lsr_prod_contrib.click_sets.log import ClickLog
from lsr_prod_contrib.click_sets.rows import normalized

Ints = npt.NDArray[np.int64]

_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class ClickedTexts:
    """Membership of documents in what was clicked, however rarely, by text."""

    group: Ints  # int64 [D], number of the normalized text of every document
    of_query: Ints  # int64 [Q], cluster of every query
    cluster_groups: Ints  # int64, sorted: cluster * groups + group of every clicked text
    groups: int  # number of normalized texts
    pair_query: Ints  # int64 [P], all pairs of the log
    pair_group: Ints  # int64 [P]

    @classmethod
    def of(cls, log: ClickLog, clusters: Clusters) -> "ClickedTexts":
        """Collect the clicks of all queries that are in a cluster."""
        group = text_groups(log)
        groups = int(group.max(initial=-1)) + 1
        pair_group, of_pair = group[log.pair_document], clusters.of_query[log.pair_query]
        inside = of_pair >= 0
        keys = np.unique(of_pair[inside] * groups + pair_group[inside])
        return cls(group, clusters.of_query, keys, groups, log.pair_query, pair_group)

    def by_cluster_of(self, query: int, documents: Ints) -> npt.NDArray[np.bool_]:
        """Return whether a query of the cluster of ``query`` clicked the text of each document."""
        keys = self.of_query[query] * self.groups + self.group[documents]
        place = np.searchsorted(self.cluster_groups, keys)
        place[place == len(self.cluster_groups)] = 0
        return np.asarray(self.cluster_groups[place] == keys) if len(self.cluster_groups) else keys < 0

    def by_any(self, queries: npt.NDArray[np.bool_], documents: Ints) -> npt.NDArray[np.bool_]:
        """Return whether one of some queries (bool [Q]) clicked the text of each document."""
        clicked = np.zeros(self.groups, bool)
        clicked[self.pair_group[queries[self.pair_query]]] = True
        return clicked[self.group[documents]]


def text_groups(log: ClickLog) -> Ints:
    """Return a number per document; documents with the same normalized text have the same number.

    64 bits of BLAKE2b stand for a text: among 1e8 different texts, the probability that any two have the same is 3e-4.
    """
    parts = [np.zeros(0, np.uint64)]
    for start in range(0, len(log.documents), _ROWS):
        titles, texts = log.titles.slice(start, _ROWS).to_pylist(), log.texts.slice(start, _ROWS).to_pylist()
        parts.append(_hashes(document_texts(titles, texts)))
    return np.unique(np.concatenate(parts), return_inverse=True)[1].astype(np.int64)


def _hashes(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(normalized(text).encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, ">u8").astype(np.uint64)
