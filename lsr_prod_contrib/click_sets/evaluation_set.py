"""One evaluation set: queries drawn equally from the thirds, positives, negatives, and the corpus (3.5, C.1)."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod_contrib.click_sets.clusters import Clusters
from lsr_prod_contrib.click_sets.duplicates import ClickedTexts
from lsr_prod_contrib.click_sets.hashing import Hashes, mix
from lsr_prod_contrib.click_sets.lexical import (
    WordPostings,
    document_texts,
    matched_terms,
    query_vocabulary,
    required_matches,
    term_rows,
)
from lsr_prod_contrib.click_sets.log import ClickLog
from lsr_prod_contrib.click_sets.relevant import Relevant

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_THIRDS = ("low", "middle", "high")


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """A test set or a validation set; numbers are those of the log."""

    queries: Ints  # int64 [n], rising
    ratio: Floats  # float64 [n], matched-term ratio: the highest over the positives
    third: npt.NDArray[np.int8]  # int8 [n]: 0 low, 1 middle, 2 high
    positives: tuple[Ints, Ints]  # (query, document), by query, best first
    negatives: tuple[Ints, Ints]  # (query, document), by query, highest ratio first
    negative_ratio: Floats  # float64, matched-term ratio of every negative
    corpus: Ints  # int64, documents, rising
    removed: Ints  # int64, all queries that the set takes from the training data, rising
    counts: dict[str, Any]  # figures for the manifest


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Queries with positives and negatives."""

    queries: Ints
    ratio: Floats
    negatives: dict[int, tuple[Ints, Floats]]
    dropped: Counter[str]


@dataclass(frozen=True, slots=True)
class SetBuilder:
    """Builds the sets of one log."""

    log: ClickLog  # the click log
    relevant: Relevant  # relevant documents
    clusters: Clusters  # clusters of the queries
    clicked: ClickedTexts  # texts that the queries and the clusters have clicked
    query_hashes: Hashes  # uint64 [Q]
    document_hashes: Hashes  # uint64 [D]
    settings: ClickSetSettings  # numbers and bounds

    def build(
        self, candidates: npt.NDArray[np.bool_], distractors: npt.NDArray[np.bool_], drawn: int | None
    ) -> EvaluationSet:
        """Build a set."""
        usable = self._candidates(candidates, distractors)
        hashes = self.query_hashes[usable.queries]
        third = thirds_by_rank(usable.ratio, hashes)
        kept = draw_equally(third, hashes, drawn)
        queries = usable.queries[kept]
        is_drawn = np.zeros(len(self.log.keys), bool)
        is_drawn[queries] = True
        positives = self.relevant.of(is_drawn, self.settings.positives)
        found = [usable.negatives[query] for query in queries.tolist()]
        lengths = [len(documents) for documents, _ in found]
        negatives = np.concatenate([np.zeros(0, np.int64), *(documents for documents, _ in found)])
        corpus, figures = self._corpus(is_drawn, positives[1], negatives, candidates, distractors)
        thirds = {
            name: _figures(usable.ratio[kept][third[kept] == number], usable.ratio[third == number])
            for number, name in enumerate(_THIRDS)
        }
        counts = {
            "candidates": int(candidates.sum()),
            "dropped_candidates": dict(sorted(usable.dropped.items())),
            "queries": len(queries),
            "thirds": thirds,
            "positives": len(positives[1]),
            "negatives": len(negatives),
            "documents": len(corpus),
            **figures,
        }
        return EvaluationSet(
            queries,
            usable.ratio[kept],
            third[kept],
            positives,
            (np.repeat(queries, lengths), negatives),
            np.concatenate([np.zeros(0), *(ratios for _, ratios in found)]),
            corpus,
            np.flatnonzero(candidates | distractors),
            counts,
        )

    def _candidates(self, candidates: npt.NDArray[np.bool_], distractors: npt.NDArray[np.bool_]) -> _Candidates:
        """Return the candidates that have negatives, with them and with their ratio.

        The pool of negatives are the positives of candidates, and the documents of distractor queries without every
        text that a candidate clicked: such a document may be relevant to another query of the set, but is not judged.
        """
        queries = np.flatnonzero(candidates)
        pair_query, pair_document = self.relevant.of(candidates, self.settings.positives)
        others = np.unique(self.relevant.of(distractors)[1])
        others = others[~self.clicked.by_any(candidates, others)]
        pool = np.union1d(pair_document, others)
        pair_row = np.searchsorted(pool, pair_document)
        texts = self._strings(self.log.queries, queries)
        vocabulary = query_vocabulary(texts)
        words = term_rows(texts, vocabulary)
        documents = document_texts(self._strings(self.log.titles, pool), self._strings(self.log.texts, pool))
        document_words = term_rows(documents, vocabulary)
        query_row = np.searchsorted(queries, pair_query)
        matched = matched_terms(words, document_words, query_row, pair_row, len(vocabulary))
        best = np.zeros(len(queries), np.int64)
        np.maximum.at(best, query_row, matched)
        postings = WordPostings(document_words, len(vocabulary))
        dropped, kept, negatives = Counter[str](), [], dict[int, tuple[Ints, Floats]]()
        for row, query in enumerate(queries.tolist()):
            if not words.lengths[row]:
                dropped["no_words"] += 1
                continue
            found = self._negatives(query, words.row(row), postings, pool)
            if not len(found[0]):
                dropped["no_negatives"] += 1
                continue
            kept.append(row)
            negatives[query] = found
        rows = np.array(kept, np.int64)
        return _Candidates(queries[rows], best[rows] / words.lengths[rows], negatives, dropped)

    def _negatives(self, query: int, words: Ints, postings: WordPostings, pool: Ints) -> tuple[Ints, Floats]:
        """Return the hard lexical negatives of a query and their ratios, highest first; ties by the hash of the pair.

        The pool has documents of all clusters. A document whose text a query of the own cluster clicked
        is no negative, so those that are left are relevant to queries of other clusters only.
        """
        rows, matched = postings.matching(words, required_matches(len(words), self.settings.negative_ratio))
        documents = pool[rows]
        foreign = ~self.clicked.by_cluster_of(query, documents)
        documents, matched = documents[foreign], matched[foreign]
        ties = mix(self.document_hashes[documents], int(self.query_hashes[query]))
        order = np.lexsort((documents, ties, -matched))[: self.settings.negatives]
        return documents[order], matched[order] / len(words)

    def _corpus(
        self,
        is_drawn: npt.NDArray[np.bool_],
        positives: Ints,
        negatives: Ints,
        candidates: npt.NDArray[np.bool_],
        distractors: npt.NDArray[np.bool_],
    ) -> tuple[Ints, dict[str, int]]:
        """Return the documents of a set, and their numbers by role.

        Distractors are the documents of distractor queries, and of candidates that were not drawn, without every text
        that a drawn query clicked: such a document would be relevant, but not judged. Positives of another drawn query
        stay, even where a query with many relevant documents clicked them.
        """
        judged = np.union1d(positives, negatives)
        others = self.relevant.of(candidates & ~is_drawn, self.settings.positives)[1]
        added = np.setdiff1d(np.concatenate([others, self.relevant.of(distractors)[1]]), judged)
        excluded = self.clicked.by_any(is_drawn, added)
        corpus = np.union1d(judged, added[~excluded])
        figures = {
            "positive_documents": len(np.unique(positives)),
            "negative_documents": len(np.setdiff1d(negatives, positives)),
            "distractor_queries": int(distractors.sum()),
            "distractor_documents": int((~excluded).sum()),
            "distractors_excluded_as_clicked": int(excluded.sum()),
        }
        return corpus, figures

    @staticmethod
    def _strings(column: Any, rows: Ints) -> list[str]:
        strings: list[str] = column.take(rows).to_pylist()
        return strings


def _figures(drawn: Floats, candidates: Floats) -> dict[str, Any]:
    """Return numbers and ratios of a third."""
    if not len(candidates):
        return {"candidates": 0, "queries": 0}
    return {
        "candidates": len(candidates),
        "queries": len(drawn),
        "lowest_ratio": float(candidates.min()),
        "highest_ratio": float(candidates.max()),
        "mean_ratio": float(drawn.mean()) if len(drawn) else 0.0,
    }


_ORDER_OF_TIES, _ORDER_OF_DRAW = 3, 4


def thirds_by_rank(ratio: npt.NDArray[np.float64], hashes: Hashes) -> npt.NDArray[np.int8]:
    """Return the third of every query: 0 low, 1 middle, 2 high.

    Queries are ordered by (ratio, seeded hash, number); third i has the ranks from ``i * n // 3`` to ``(i + 1) * n //
    3``. Short queries have few different ratios, so many queries are tied at a boundary: the hash decides there.
    """
    count = len(ratio)
    order = np.lexsort((np.arange(count), mix(hashes, _ORDER_OF_TIES), ratio))
    third = np.zeros(count, np.int8)
    for number in range(3):
        third[order[number * count // 3 : (number + 1) * count // 3]] = number
    return third


def draw_equally(third: npt.NDArray[np.int8], hashes: Hashes, drawn: int | None) -> npt.NDArray[np.int64]:
    """Draw the same number of queries from each third: as many as the smallest has, ``drawn // 3`` at most.

    Returns:
        Numbers of the drawn queries, rising.
    """
    number = int(np.bincount(third, minlength=3).min())
    number = number if drawn is None else min(number, drawn // 3)
    order = np.lexsort((np.arange(len(third)), mix(hashes, _ORDER_OF_DRAW)))
    return np.sort(np.concatenate([order[third[order] == one][:number] for one in range(3)]))
