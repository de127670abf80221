"""Add negatives to pairs."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lsr_prod.config import MineSettings
from lsr_prod.corpus.rows import BadRow, shorten
from lsr_prod.negatives.index import Answer, MinedIndex
from lsr_prod.negatives.keys import id_key, normalized, text_key
from lsr_prod.negatives.known import KnownPositives
from lsr_prod.negatives.pairs import Pair
from lsr_prod.negatives.rules import Candidate, choose, highest_score
from lsr_prod.negatives.teacher import TeacherScores
from lsr_prod.negatives.teacher_model import TeacherModel


@dataclass(frozen=True, slots=True)
class MinedRow:
    """Output row.

    Attributes:
        query: text of the query.
        positive: the positive; its doc_id is "" if neither the data nor the index has an id for it.
        negatives: in descending order of index score.
        scores: of the positive, then of the negatives, by the teacher or else by the index; empty if ``scores`` is off.
    """

    query: str
    positive: Candidate
    negatives: tuple[Candidate, ...]
    scores: tuple[float, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of negatives."""
        return {"negatives": len(self.negatives)}


@dataclass(frozen=True, slots=True)
class Miner:
    """Miner of batches of pairs.

    Attributes:
        index: the index that is searched.
        settings: the section ``mine``.
        known: positives of queries with several rows.
        teacher: scores of a teacher, or the teacher itself; None: the scores of the index are used.
    """

    index: MinedIndex
    settings: MineSettings
    known: KnownPositives
    teacher: TeacherScores | TeacherModel | None

    def begin_slice(self) -> None:
        """Drop what the teacher keeps of earlier slices."""
        if isinstance(self.teacher, TeacherModel):
            self.teacher.forget()

    def mine(self, pairs: Sequence[Pair]) -> Iterator[tuple[MinedRow | BadRow, Counter[str]]]:
        """Yield for each pair, in order, its row and the number of hits that each rule dropped.

        A pair without enough negatives, or without a usable positive, becomes a bad row.
        """
        answers = self.index.answer([pair.query for pair in pairs])
        positives = self._positives(pairs, answers)
        if isinstance(self.teacher, TeacherModel):
            self.teacher.score(_texts(pairs, answers, positives))
        for pair, answer, positive in zip(pairs, answers, positives, strict=True):
            if isinstance(positive, BadRow):
                yield positive, Counter()
            else:
                yield self._mine_one(pair, answer, positive)

    def _positives(self, pairs: Sequence[Pair], answers: Sequence[Answer]) -> list[Candidate | BadRow]:
        """Return the positive of every row: found by id in the index or by text among the hits, otherwise encoded."""
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
            if document is not None and normalized(pair.positive or document.text):
                return Candidate(document.doc_id, pair.positive or document.text, document.score)
            if pair.positive is None:
                state = "is not in the index" if document is None else "has no text in the index"
                return _bad("unknown_positive", f"document {pair.positive_id} {state}", pair)
            return None
        text = normalized(pair.positive or "")
        hit = next((hit for hit in answer.hits if normalized(hit.text) == text), None)
        return hit and Candidate(hit.doc_id, pair.positive or hit.text, hit.score)

    def _mine_one(self, pair: Pair, answer: Answer, positive: Candidate) -> tuple[MinedRow | BadRow, Counter[str]]:
        settings, known, text = self.settings, self.known.of_query(pair.query), normalized(positive.text)
        score = self._score(pair, positive)
        if score is None:
            detail = f"the teacher did not score the positive {positive.doc_id!r}"
            return _bad("no_teacher_score", detail, pair), Counter()
        choice = choose(
            answer.hits,
            settings=settings,
            is_positive=lambda hit: hit.doc_id == positive.doc_id or normalized(hit.text) == text,
            is_known=lambda hit: bool(known) and (id_key(hit.doc_id) in known or text_key(hit.text) in known),
            score_of=lambda hit: self._score(pair, hit),
            bound=highest_score(score, settings),
            row=f"{normalized(pair.query)}\n{pair.positive_id or text}",
        )
        if len(choice.negatives) < settings.at_least:
            rules = ", ".join(f"{rule} {count}" for rule, count in choice.dropped.items())
            detail = f"{len(choice.negatives)} of {len(answer.hits)} hits are left ({rules or 'none was found'})"
            return _bad("too_few_negatives", detail, pair), choice.dropped
        scores = [score, *(self._score(pair, hit) for hit in choice.negatives)] if settings.scores else []
        known_scores = tuple(one for one in scores if one is not None)
        return MinedRow(pair.query, positive, choice.negatives, known_scores), choice.dropped

    def _score(self, pair: Pair, document: Candidate) -> float | None:
        """Return the score that margins compare: of the teacher, or else of the index."""
        if self.teacher is None or self.settings.teacher is None:
            return document.score
        if isinstance(self.teacher, TeacherModel):
            return self.teacher.of_texts(pair.query, document.text)
        query = pair.query_id if self.settings.teacher.key == "query_id" else pair.query
        return self.teacher.of_pair(query or "", document.doc_id)


def _texts(
    pairs: Sequence[Pair], answers: Sequence[Answer], positives: Sequence[Candidate | BadRow]
) -> Iterator[tuple[str, str]]:
    """Yield query and text of every document that a teacher has to score."""
    for pair, answer, positive in zip(pairs, answers, positives, strict=True):
        if isinstance(positive, Candidate):
            yield pair.query, positive.text
            yield from ((pair.query, hit.text) for hit in answer.hits if normalized(hit.text))


def _bad(reason: str, detail: str, pair: Pair) -> BadRow:
    shown = {"query": pair.query, "positive": pair.positive, "positive_id": pair.positive_id}
    return BadRow(reason, detail, pair.positive_id, shorten(json.dumps(shown, ensure_ascii=False)))
