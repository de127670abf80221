"""Add negatives from an index to the pairs of a slice: one Parquet part, and bad rows in the quarantine."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lsr_prod.config import MineSettings
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.corpus.source_rows import BadRow, shorten
from lsr_prod.errors import ArtifactError, ConfigError, PublicationError, QueryError
from lsr_prod.search import Searcher
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.storage import Store, is_remote, require_exists
from lsr_prod.storage.formats.table_format import quantize
from lsr_prod.training.data.row_parts import PartFormat, PartReport, in_batches
from lsr_prod.training.negatives import inputs, rules

if TYPE_CHECKING:
    from lsr_prod.training.scoring.teacher import PairScorer

MINED = PartFormat("mined", counts=("negatives", "suspicious"), rules=rules.RULES)


@dataclass(frozen=True, slots=True)
class Answer:
    """Search result of one query."""

    query: SparseQuery  # sparse vector of the query
    hits: tuple[rules.Candidate, ...]  # in descending order of score


@dataclass(frozen=True, slots=True)
class MinedRow:
    """Output row."""

    query: str  # text of the query
    positive: rules.Candidate  # the positive; its doc_id is "" if neither the data nor the index has an id for it
    negatives: tuple[rules.Candidate, ...]  # in descending order of index score
    # of the positive, then of the negatives, by the teacher or else by the index; empty if ``scores`` is off
    scores: tuple[float, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of negatives, and of those that have nearly the same words as the positive."""
        words = set(rules.words_of(self.positive.text))
        suspicious = sum(rules.has_same_words(words, set(rules.words_of(hit.text))) for hit in self.negatives)
        return {"negatives": len(self.negatives), "suspicious": suspicious}


class MinedIndex:
    """A published index, open for mining; ``version``: sha256 of the index version that is searched."""

    def __init__(self, settings: MineSettings, options: Mapping[str, str], *, version: str | None = None) -> None:
        self._settings = settings
        if not is_remote(settings.index):
            require_exists("mine.index", settings.index)
        try:
            self._searcher = Searcher.open(
                settings.index,
                encoder_threads=settings.threads_per_actor,
                cache=settings.cache,
                storage_options=options,
            )
        except PublicationError as error:
            raise ConfigError("mine.index", str(error), "publish the index first") from error
        self.version = self._searcher.snapshot.publication.version
        if version is not None and version != self.version:
            raise ArtifactError(
                f"{settings.index} was published again while it was mined; run the job again with another mine.output"
            )
        self.documents = self._searcher.documents  # that a search can return
        stored = self._searcher.version.stored_fields
        if absent := [name for name in settings.text_fields if name not in stored]:
            problem = f"{settings.index} does not store {', '.join(absent)}"
            remedy = f"it stores: {', '.join(stored) or 'no text; encode with source.stored_fields and index again'}"
            raise ConfigError("mine.text_fields", problem, remedy)
        if not self.documents:
            raise ConfigError("mine.index", f"{settings.index} holds no documents", "index a corpus first")

    def warm(self) -> None:
        """Load the query encoder."""
        self._searcher.warm()

    def answer(self, queries: Sequence[str]) -> list[Answer]:
        """Return the first ``depth`` hits of every query, with their texts."""
        settings = self._settings
        vocabulary = self._searcher.snapshot.vocabulary
        answers = []
        for result in self._searcher.search_batch(list(queries), settings.depth, fields=settings.text_fields):
            query = SparseQuery.from_vector({term.term: term.weight for term in result.query}, vocabulary)
            hits = tuple(rules.Candidate(hit.doc_id, self._text(hit.fields), hit.score) for hit in result.hits)
            answers.append(Answer(query, hits))
        return answers

    def document(self, doc_id: str, query: SparseQuery) -> rules.Candidate | None:
        """Return a document with its score for a query, bit-identical to a search; None if the index lacks it."""
        snapshot = self._searcher.snapshot
        try:
            number, ordinal = snapshot.find(doc_id)
        except QueryError:
            return None
        reader, known = snapshot.readers[number], query.ids >= 0
        weights = query.scaled(snapshot.version.impact_step)[known]
        scores, _ = reader.shard.forward.score(np.array([ordinal]), query.ids[known], weights, dk=reader.dk)
        fields = reader.shard.documents.fields(ordinal, {name: name for name in self._settings.text_fields})
        return rules.Candidate(doc_id, self._text(fields), float(scores[0]))

    def scores_of_texts(self, texts: Sequence[str], queries: Sequence[SparseQuery]) -> list[float]:
        """Return the score that ``texts[i]`` would have for ``queries[i]`` as a document of the index.

        A text is encoded as a document, then pruned and quantized like the index; it is truncated to the document
        length of the encoder card.
        """
        version = self._searcher.version
        encoded = self._searcher.encoder.encode(list(texts), kind="document", top_k=version.dk)
        scores = []
        for i, query in enumerate(queries):
            terms, weights = encoded.row(i)
            impacts = dict(zip(terms.tolist(), quantize(weights, version.impact_step)[0].tolist(), strict=True))
            score = np.float32(0)
            for term, weight in zip(query.ids.tolist(), query.scaled(version.impact_step), strict=True):
                if term in impacts:
                    score += weight * np.float32(impacts[term])
            scores.append(float(score))
        return scores

    def _text(self, fields: Mapping[str, object]) -> str:
        values = [str(fields[name]) for name in self._settings.text_fields if fields.get(name)]
        return self._settings.separator.join(values)


class TeacherModel:
    """Scores of the current batch."""

    def __init__(self, scorer: "PairScorer") -> None:
        self._scorer = scorer
        self._scores: dict[tuple[str, str], float] = {}

    def score(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Score pairs of query and text; the scores of the batch before are dropped."""
        distinct = list(dict.fromkeys(pairs))
        scores, failed = self._scorer.score(distinct)
        self._scores = {pair: float(scores[i]) for i, pair in enumerate(distinct) if i not in failed}

    def of_texts(self, query: str, text: str) -> float | None:
        """Return the score of a text for a query; None if the teacher failed on it."""
        return self._scores.get((query, text))

    def forget(self) -> None:
        """Drop everything kept of earlier slices, so that a part does not depend on them."""
        self._scores = {}
        self._scorer.forget()


@dataclass(frozen=True, slots=True)
class Miner:
    """Miner of batches of pairs."""

    index: MinedIndex  # the index that is searched
    settings: MineSettings  # the section ``mine``
    known: inputs.KnownPositives  # positives of queries with several rows
    # scores of a teacher, or the teacher itself; None: the scores of the index are used
    teacher: inputs.TeacherScores | TeacherModel | None

    def mine(self, pairs: Sequence[inputs.Pair]) -> Iterator[tuple[MinedRow | BadRow, Counter[str]]]:
        """Yield for each pair, in order, its row or why it has none, and the number of hits that each rule dropped."""
        answers = self.index.answer([pair.query for pair in pairs])
        positives = self._positives(pairs, answers)
        if isinstance(self.teacher, TeacherModel):
            self.teacher.score(_texts(pairs, answers, positives))
        for pair, answer, positive in zip(pairs, answers, positives, strict=True):
            if isinstance(positive, BadRow):
                yield positive, Counter()
            else:
                yield self._mine_one(pair, answer, positive)

    def _positives(self, pairs: Sequence[inputs.Pair], answers: Sequence[Answer]) -> list[rules.Candidate | BadRow]:
        """Return the positive of every row: found by id in the index or by text among the hits, otherwise encoded."""
        found = [self._found(pair, answer) for pair, answer in zip(pairs, answers, strict=True)]
        absent = [i for i, positive in enumerate(found) if positive is None]
        texts = [pairs[i].positive or "" for i in absent]
        scores = iter(self.index.scores_of_texts(texts, [answers[i].query for i in absent]) if absent else ())
        return [
            rules.Candidate(pair.positive_id or "", pair.positive or "", next(scores)) if positive is None else positive
            for pair, positive in zip(pairs, found, strict=True)
        ]

    def _found(self, pair: inputs.Pair, answer: Answer) -> rules.Candidate | BadRow | None:
        if pair.positive_id is not None:
            document = self.index.document(pair.positive_id, answer.query)
            if document is not None and rules.normalized(pair.positive or document.text):
                return rules.Candidate(document.doc_id, pair.positive or document.text, document.score)
            if pair.positive is None:
                state = "is not in the index" if document is None else "has no text in the index"
                return _bad("unknown_positive", f"document {pair.positive_id} {state}", pair)
            return None
        text = rules.normalized(pair.positive or "")
        hit = next((hit for hit in answer.hits if rules.normalized(hit.text) == text), None)
        return hit and rules.Candidate(hit.doc_id, pair.positive or hit.text, hit.score)

    def _mine_one(
        self, pair: inputs.Pair, answer: Answer, positive: rules.Candidate
    ) -> tuple[MinedRow | BadRow, Counter[str]]:
        settings, text, query = self.settings, rules.normalized(positive.text), frozenset(rules.words_of(pair.query))
        known, sketches = self.known.of_query(pair.query)
        score = self._score(pair, positive)
        if score is None:
            detail = f"the teacher did not score the positive {positive.doc_id!r}"
            return _bad("no_teacher_score", detail, pair), Counter()
        positives = {
            hit.doc_id for hit in answer.hits if hit.doc_id == positive.doc_id or rules.normalized(hit.text) == text
        }
        also = {
            hit.doc_id for hit in answer.hits if known and known & {rules.id_key(hit.doc_id), rules.text_key(hit.text)}
        }
        texts = {positive.text, *(hit.text for hit in answer.hits if hit.doc_id in positives | also)}
        own = [*map(rules.Fingerprint.of, texts), *sketches]
        choice = rules.choose(
            answer.hits,
            settings=settings,
            positives=positives,
            known=also,
            is_near=lambda hit: rules.is_own(hit.text, own, query, settings.own_share),
            score_of=lambda hit: self._score(pair, hit),
            bound=rules.highest_score(score, settings),
            row=f"{rules.normalized(pair.query)}\n{pair.positive_id or text}",
        )
        if len(choice.negatives) < settings.at_least:
            dropped = ", ".join(f"{rule} {count}" for rule, count in choice.dropped.items())
            detail = f"{len(choice.negatives)} of {len(answer.hits)} hits are left ({dropped or 'none was found'})"
            return _bad("too_few_negatives", detail, pair), choice.dropped
        scores = [score, *(self._score(pair, hit) for hit in choice.negatives)] if settings.scores else []
        known_scores = tuple(one for one in scores if one is not None)
        return MinedRow(pair.query, positive, choice.negatives, known_scores), choice.dropped

    def _score(self, pair: inputs.Pair, document: rules.Candidate) -> float | None:
        """Return the score that margins compare: of the teacher, or else of the index."""
        if self.teacher is None or self.settings.teacher is None:
            return document.score
        if isinstance(self.teacher, TeacherModel):
            return self.teacher.of_texts(pair.query, document.text)
        query = pair.query_id if self.settings.teacher.key == "query_id" else pair.query
        return self.teacher.of_pair(query or "", document.doc_id)


def mine_slice(miner: Miner, store: Store, plan: str, number: int, piece: Slice) -> PartReport:
    """Mine a slice, then write its quarantine and its part."""
    if isinstance(miner.teacher, TeacherModel):
        miner.teacher.forget()
    mined = _mined(piece, miner, store.options)
    return MINED.write(store, plan, number, piece, mined, lambda rows: _table(rows, miner.settings))


def _mined(
    piece: Slice, miner: Miner, options: dict[str, str]
) -> Iterator[tuple[int, MinedRow | BadRow, Counter[str]]]:
    """Yield (position, row, dropped hits by rule); batches start at the slice, so every run makes the same ones."""
    for batch in in_batches(inputs.read_pairs(piece, miner.settings, options), miner.settings.batch):
        pairs = [(at, row) for at, row in batch if isinstance(row, inputs.Pair)]
        yield from ((at, row, Counter()) for at, row in batch if isinstance(row, BadRow))
        mined = miner.mine([pair for _, pair in pairs]) if pairs else ()
        yield from ((at, row, hits) for (at, _), (row, hits) in zip(pairs, mined, strict=True))


def _table(rows: Sequence[MinedRow], settings: MineSettings) -> pa.Table:
    """Return training data of kind negatives, and with ``scores`` also of kind scores."""
    text, number = pa.string(), pa.float32()
    columns = {
        "query": pa.array([row.query for row in rows], text),
        "positive": pa.array([row.positive.text for row in rows], text),
        "negatives": pa.array([[hit.text for hit in row.negatives] for row in rows], pa.list_(text)),
        "positive_id": pa.array([row.positive.doc_id or None for row in rows], text),
        "negative_ids": pa.array([[hit.doc_id for hit in row.negatives] for row in rows], pa.list_(text)),
        "positive_score": pa.array([row.positive.score for row in rows], number),
        "negative_scores": pa.array([[hit.score for hit in row.negatives] for row in rows], pa.list_(number)),
    }
    if settings.scores:
        documents = [[row.positive.text, *(hit.text for hit in row.negatives)] for row in rows]
        columns["documents"] = pa.array(documents, pa.list_(text))
        columns["scores"] = pa.array([row.scores for row in rows], pa.list_(number))
    return pa.table(columns)


def _texts(
    pairs: Sequence[inputs.Pair], answers: Sequence[Answer], positives: Sequence[rules.Candidate | BadRow]
) -> Iterator[tuple[str, str]]:
    """Yield query and text of every document that a teacher has to score."""
    for pair, answer, positive in zip(pairs, answers, positives, strict=True):
        if isinstance(positive, rules.Candidate):
            yield pair.query, positive.text
            yield from ((pair.query, hit.text) for hit in answer.hits if rules.normalized(hit.text))


def _bad(reason: str, detail: str, pair: inputs.Pair) -> BadRow:
    shown = {"query": pair.query, "positive": pair.positive, "positive_id": pair.positive_id}
    return BadRow(reason, detail, pair.positive_id, shorten(json.dumps(shown, ensure_ascii=False)))
