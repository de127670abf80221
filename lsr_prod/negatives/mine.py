"""Rows of pairs become rows with negatives."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lsr_prod.config import MineSettings
from lsr_prod.corpus.rows import BadRow, shorten
from lsr_prod.negatives.index import Answer, MinedIndex
from lsr_prod.negatives.keys import id_key, normalised, text_key
from lsr_prod.negatives.known import KnownPositives
from lsr_prod.negatives.pairs import Pair
from lsr_prod.negatives.rules import Candidate, choose, highest_score
from lsr_prod.negatives.teacher import TeacherScores

__all__ = ["MinedRow", "Miner"]


@dataclass(frozen=True, slots=True)
class MinedRow:
    """A row of the output.

    Attributes:
        query: the query.
        positive: the positive; its doc_id is "" where neither the data nor the index names it.
        negatives: by falling score of the index.
        scores: the teacher's, else the index's: of the positive, then of the negatives; empty where none are wanted.
    """

    query: str
    positive: Candidate
    negatives: tuple[Candidate, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Miner:
    """Mines batches of pairs.

    Attributes:
        index: that is asked.
        settings: the section ``mine``.
        known: positives of queries of several rows.
        teacher: its scores; None: the index judges.
    """

    index: MinedIndex
    settings: MineSettings
    known: KnownPositives
    teacher: TeacherScores | None

    def mine(self, pairs: Sequence[Pair]) -> Iterator[tuple[MinedRow | BadRow, Counter[str]]]:
        """One row a pair, in order, and how many hits each rule dropped.

        A pair without enough negatives, or without a positive that can be used, is a bad row.
        """
        answers = self.index.answer([pair.query for pair in pairs])
        positives = self._positives(pairs, answers)
        for pair, answer, positive in zip(pairs, answers, positives, strict=True):
            if isinstance(positive, BadRow):
                yield positive, Counter()
            else:
                yield self._mine_one(pair, answer, positive)

    def _positives(self, pairs: Sequence[Pair], answers: Sequence[Answer]) -> list[Candidate | BadRow]:
        """The positive of every row: by its id in the index, by its text among the hits, else encoded."""
        found = [self._found(pair, answer) for pair, answer in zip(pairs, answers, strict=True)]
        absent = [i for i, positive in enumerate(found) if positive is None]
        texts = [pairs[i].positive or "" for i in absent]
        scores = self.index.scores_of_texts(texts, [answers[i].query for i in absent]) if absent else []
        encoded = {
            i: Candidate(pairs[i].positive_id or "", text, score)
            for i, text, score in zip(absent, texts, scores, strict=True)
        }
        return [encoded[i] if positive is None else positive for i, positive in enumerate(found)]

    def _found(self, pair: Pair, answer: Answer) -> Candidate | BadRow | None:
        if pair.positive_id is not None:
            document = self.index.document(pair.positive_id, answer.query)
            if document is not None and normalised(pair.positive or document.text):
                return Candidate(document.doc_id, pair.positive or document.text, document.score)
            if pair.positive is None:
                state = "is not in the index" if document is None else "has no text in the index"
                return _bad("unknown_positive", f"document {pair.positive_id} {state}", pair)
            return None
        text = normalised(pair.positive or "")
        hit = next((hit for hit in answer.hits if normalised(hit.text) == text), None)
        return hit and Candidate(hit.doc_id, pair.positive or hit.text, hit.score)

    def _mine_one(self, pair: Pair, answer: Answer, positive: Candidate) -> tuple[MinedRow | BadRow, Counter[str]]:
        settings, known, text = self.settings, self.known.of_query(pair.query), normalised(positive.text)
        score = self._judge(pair, positive)
        if score is None:
            detail = f"the teacher did not score the positive {positive.doc_id!r}"
            return _bad("no_teacher_score", detail, pair), Counter()
        choice = choose(
            answer.hits,
            settings=settings,
            is_positive=lambda hit: hit.doc_id == positive.doc_id or normalised(hit.text) == text,
            is_known=lambda hit: bool(known) and (id_key(hit.doc_id) in known or text_key(hit.text) in known),
            judged=lambda hit: self._judge(pair, hit),
            bound=highest_score(score, settings),
            row=f"{normalised(pair.query)}\n{pair.positive_id or text}",
        )
        if len(choice.negatives) < settings.at_least:
            rules = ", ".join(f"{rule} {count}" for rule, count in choice.dropped.items())
            detail = f"{len(choice.negatives)} of {len(answer.hits)} hits are left ({rules or 'none was found'})"
            return _bad("too_few_negatives", detail, pair), choice.dropped
        scores = [score, *(self._judge(pair, hit) for hit in choice.negatives)] if settings.scores else []
        judged = tuple(one for one in scores if one is not None)
        return MinedRow(pair.query, positive, choice.negatives, judged), choice.dropped

    def _judge(self, pair: Pair, document: Candidate) -> float | None:
        """The score that margins compare."""
        if self.teacher is None or self.settings.teacher is None:
            return document.score
        query = pair.query_id if self.settings.teacher.key == "query_id" else pair.query
        return self.teacher.of_pair(query or "", document.doc_id)


def _bad(reason: str, detail: str, pair: Pair) -> BadRow:
    shown = {"query": pair.query, "positive": pair.positive, "positive_id": pair.positive_id}
    return BadRow(reason, detail, pair.positive_id, shorten(json.dumps(shown, ensure_ascii=False)))
