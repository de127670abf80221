"""Inputs of mining: pairs of query and positive, a teacher's scores, and the positives of queries with several rows."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lsr_prod.config import MineSettings, SourceSettings, TeacherScoresSettings
from lsr_prod.corpus import filelist, listing, read
from lsr_prod.corpus.formats.interface import ReadRequest
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.corpus.source_rows import BadRow, as_string, is_visible, shorten, show
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.training.data import known_positives, row_jobs, schemas, training_rows
from lsr_prod.training.negatives.rules import SKETCH_SIZE, Fingerprint, id_key, normalized, pair_key, text_key

_SLICE_BYTES = 32_000_000
_LONGEST_LINE = 4 << 20
Scores = tuple[np.typing.NDArray[np.uint64], np.typing.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Pair:
    """Validated row."""

    query: str  # text of the query; has at least one visible character
    positive: str | None  # text of the positive; None: the text is in the index
    positive_id: str | None = None  # id of the positive in the index, if the data has it
    query_id: str | None = None  # id of the query, if the data has it


def cut_pairs(settings: MineSettings, options: dict[str, str]) -> list[Slice]:
    """Pin the files of the data and cut them into slices."""
    source = _source(settings)
    with training_rows.field_errors("mine.data"):
        files = list(listing.resolve_source(source, options, documents=False))
        schemas.check_formats(files)
        return list(filelist.cut_files(enumerate(files), source, settings.slice_kilobytes * 1000, options))


def _source(settings: MineSettings) -> SourceSettings:
    """Return the source settings for listing and cutting; a row needs a query, and a positive as text or id."""
    return training_rows.source_of(settings.data, settings.data.column("query"), _positive_fields(settings))


def _positive_fields(settings: MineSettings) -> list[str]:
    return [settings.data.column("positive"), *([settings.positive_id] if settings.positive_id else [])]


def read_pairs(piece: Slice, settings: MineSettings, options: dict[str, str]) -> Iterator[tuple[int, Pair | BadRow]]:
    """Yield (position, row) of every row of a slice: byte of a text format, row number of other formats."""
    ids = frozenset(name for name in (settings.positive_id, settings.query_id) if name)
    request = ReadRequest(
        source=_source(settings),
        columns=frozenset({settings.data.column("query"), settings.data.column("positive"), *ids}),
        limit=training_rows.row_limit(settings.data),
        ids=ids,
    )
    for position, record in read.read_records(piece, request, options):
        assert record is not None  # no position is skipped
        if isinstance(record, BadRow):
            yield position, record
        else:
            yield position, _validate(record.values, settings, record.line)


def _validate(record: Mapping[str, Any], settings: MineSettings, line: bytes | None) -> Pair | BadRow:
    """Validate one record; ``line`` is the raw line of a text format."""
    data = settings.data
    columns = (data.column("query"), data.column("positive"), settings.positive_id, settings.query_id)
    texts: list[str | None] = []
    problem: tuple[str, str] | None = None
    for column in columns:
        text, wrong = as_string(column, record.get(column)) if column else (None, None)
        texts.append(text)
        problem = problem or wrong
    query, positive, positive_id, query_id = texts
    pair = Pair(query or "", positive if is_visible(positive or "") else None, positive_id or None, query_id or None)
    problem = problem or _problem_of(pair, settings)
    if problem is None:
        return pair
    raw = show({column: record.get(column) for column in columns if column}) if line is None else shorten(line)
    return BadRow(*problem, pair.positive_id, raw)


def _problem_of(pair: Pair, settings: MineSettings) -> tuple[str, str] | None:
    data = settings.data
    if not is_visible(pair.query):
        return "empty_query", f"field {data.column('query')} holds no visible character"
    if pair.positive is None and pair.positive_id is None:
        return "missing_positive", f"{' and '.join(_positive_fields(settings))}: absent, or no visible character"
    for field, text in (("query", pair.query), ("positive", pair.positive or "")):
        if (size := len(text.encode())) > data.max_text_bytes:
            return "text_too_long", f"{data.column(field)} has {size} bytes, max_text_bytes is {data.max_text_bytes}"
    if settings.teacher is not None and settings.teacher.key == "query_id" and pair.query_id is None:
        return "missing_query_id", f"field {settings.query_id} is absent or empty"
    return None


def cut_scores(settings: TeacherScoresSettings, options: dict[str, str]) -> list[Slice]:
    """Pin the teacher's files and cut them into slices."""
    source = _source_of_scores(settings)
    try:
        files = list(listing.resolve_source(source, options, documents=False))
    except ConfigError as error:
        raise ConfigError("mine.teacher.paths", error.problem, error.remedy) from error
    for file in files:
        if not file.format.startswith("jsonl"):
            raise ConfigError("mine.teacher.paths", f"{file.location} is {file.format}", "give JSONL")
    return list(filelist.cut_files(enumerate(files), source, _SLICE_BYTES, options))


def _source_of_scores(settings: TeacherScoresSettings) -> SourceSettings:
    return SourceSettings(paths=settings.paths, text_fields=["score"], stored_fields=[])


def read_scores(piece: Slice, settings: TeacherScoresSettings, options: dict[str, str]) -> Scores:
    """Read the keys (uint64 [n]) and scores (float32 [n]) of a slice."""
    keys: list[int] = []
    scores: list[float] = []
    request = ReadRequest(_source_of_scores(settings), frozenset({settings.key, "doc_id", "score"}), _LONGEST_LINE)
    for at, record in read.read_records(piece, request, options):
        assert record is not None  # no position is skipped
        problem = record.detail if isinstance(record, BadRow) else _problem(record.values, settings.key)
        if isinstance(record, BadRow) or problem:
            raise SourceError(f"{piece.file.location} at byte {at}: {problem}; fix the teacher's file")
        keys.append(pair_key(normalized(str(record.values[settings.key])), str(record.values["doc_id"])))
        scores.append(float(record.values["score"]))
    return np.array(keys, np.uint64), np.array(scores, np.float32)


def _problem(record: Mapping[str, Any], key: str) -> str | None:
    for name in (key, "doc_id"):
        value = record.get(name)
        allowed = (str,) if name == "query" else (str, int)
        if not isinstance(value, allowed) or isinstance(value, bool) or value == "":
            return f"{name} is absent or not a string"
    score = record.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return "score is absent or not a finite number"
    return None


@dataclass(frozen=True, slots=True)
class TeacherScores:
    """Scores by query and document, in arrays that processes can share."""

    keys: np.typing.NDArray[np.uint64]  # uint64 [n], ascending
    scores: np.typing.NDArray[np.float32]  # float32 [n]

    @classmethod
    def of(cls, parts: Iterable[Scores]) -> "TeacherScores":
        """Merge the scores of all slices."""
        everything = list(parts)
        keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in everything)])
        scores = np.concatenate([np.empty(0, np.float32), *(scores for _, scores in everything)])
        order = np.argsort(keys, kind="stable")
        keys, scores = keys[order], scores[order]
        again = keys[1:] == keys[:-1]
        if (scores[1:][again] != scores[:-1][again]).any():
            raise SourceError("the teacher's files give a document two scores for one query; remove one of them")
        first = np.concatenate([np.ones(min(1, len(keys)), bool), ~again])
        return cls(keys[first], scores[first])

    def of_pair(self, query: str, doc_id: str) -> float | None:
        """Return the score of a document for a query (text or id, as in the files); None if there is none."""
        key = np.uint64(pair_key(normalized(query), doc_id))
        place = int(np.searchsorted(self.keys, key))
        return float(self.scores[place]) if place < len(self.keys) and self.keys[place] == key else None


Keys = np.typing.NDArray[np.uint64]
Sketches = np.typing.NDArray[np.uint32]
_MOST_SKETCHES = 256  # that are compared per query; all keys are


@dataclass(frozen=True, slots=True)
class PairSurvey(row_jobs.Survey):
    """Counts and keys of one slice."""

    queries: Keys  # uint64 [n], key of the query text, parallel to ``positives``
    positives: Keys  # uint64 [n], key of the text or of the id of a positive
    sketches: Sketches  # uint32 [n, SKETCH_SIZE], of the text of a positive; zeros for an id
    rows_of: Keys  # uint64 [good rows], key of the query text of every good row


def survey_slice(piece: Slice, settings: MineSettings, options: dict[str, str]) -> PairSurvey:
    """Count the rows of a slice and collect the keys and sketches of its positives."""
    rows, bad = 0, Counter[str]()
    queries: list[int] = []
    positives: list[int] = []
    sketches: list[list[int]] = []
    rows_of: list[int] = []
    for _, pair in read_pairs(piece, settings, options):
        rows += 1
        if isinstance(pair, BadRow):
            bad[pair.reason] += 1
            continue
        query = text_key(pair.query)
        rows_of.append(query)
        names = [(id_key(pair.positive_id), [0] * SKETCH_SIZE)] if pair.positive_id else []
        names += [(text_key(pair.positive), Fingerprint.of(pair.positive).sketch())] if pair.positive else []
        for key, sketch in names:
            queries.append(query)
            positives.append(key)
            sketches.append(sketch)
    of_queries, of_positives, of_rows = (np.array(keys, np.uint64) for keys in (queries, positives, rows_of))
    sketched = np.array(sketches, np.uint32).reshape(-1, SKETCH_SIZE)
    return PairSurvey(rows, bad, of_queries, of_positives, sketched, of_rows)


@dataclass(frozen=True, slots=True)
class KnownPositives:
    """Positives sorted by the key of their query, in arrays that processes can share.

    A key represents a text or an id. A collision is very unlikely and would only drop one candidate.
    """

    queries: Keys  # uint64 [n], ascending
    positives: Keys  # uint64 [n]
    sketches: Sketches  # uint32 [n, SKETCH_SIZE]

    @classmethod
    def of(cls, surveys: Iterable[PairSurvey]) -> "KnownPositives":
        """Collect the positives of queries in more than one row; a query in one row has no other positives."""
        everything = list(surveys)
        found, counts = np.unique(_joined([survey.rows_of for survey in everything]), return_counts=True)
        kept = [(survey, np.isin(survey.queries, found[counts > 1])) for survey in everything]
        queries, positives = (
            _joined([getattr(survey, name)[rows] for survey, rows in kept]) for name in ("queries", "positives")
        )
        no_rows = np.empty((0, SKETCH_SIZE), np.uint32)
        sketches = np.concatenate([no_rows, *(survey.sketches[rows] for survey, rows in kept)])
        pairs = known_positives.different_pairs(queries, positives)
        return cls(queries[pairs], positives[pairs], sketches[pairs])

    def of_query(self, query: str) -> tuple[frozenset[int], list[Fingerprint]]:
        """Return the keys of all positives of a query of several rows, and sketches of at most 256 texts."""
        key = np.uint64(text_key(query))
        rows = slice(*(np.searchsorted(self.queries, key, side) for side in ("left", "right")))
        sketches = self.sketches[rows]
        sketches = sketches[sketches.any(axis=1)][:_MOST_SKETCHES]
        return frozenset(self.positives[rows].tolist()), [Fingerprint.from_sketch(one) for one in sketches.tolist()]


def _joined(parts: Sequence[Keys]) -> Keys:
    return np.concatenate([np.empty(0, np.uint64), *parts])
