"""Teacher scores of pairs of query and document: 12 bytes per score, found by binary search."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.config import SourceSettings, TeacherScoresSettings
from lsr_prod.corpus.cut import cut_files
from lsr_prod.corpus.formats.interface import ReadRequest
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import read_records
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.training.negatives.rules import normalized, pair_key

_SLICE_BYTES = 32_000_000
_LONGEST_LINE = 4 << 20

Scores = tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32]]


def cut_scores(settings: TeacherScoresSettings, options: dict[str, str]) -> list[Slice]:
    """Pin the teacher's files and cut them into slices."""
    source = _source(settings)
    try:
        files = list(resolve_source(source, options, documents=False))
    except ConfigError as error:
        raise ConfigError("mine.teacher.paths", error.problem, error.remedy) from error
    for file in files:
        if not file.format.startswith("jsonl"):
            raise ConfigError("mine.teacher.paths", f"{file.location} is {file.format}", "give JSONL")
    return list(cut_files(enumerate(files), source, _SLICE_BYTES, options))


def _source(settings: TeacherScoresSettings) -> SourceSettings:
    return SourceSettings(paths=settings.paths, text_fields=["score"], stored_fields=[])


def read_scores(piece: Slice, settings: TeacherScoresSettings, options: dict[str, str]) -> Scores:
    """Read the keys (uint64 [n]) and scores (float32 [n]) of a slice."""
    keys: list[int] = []
    scores: list[float] = []
    request = ReadRequest(_source(settings), frozenset({settings.key, "doc_id", "score"}), _LONGEST_LINE)
    for at, record in read_records(piece, request, options):
        assert record is not None  # no position is skipped
        problem = record.detail if isinstance(record, BadRow) else _problem(record.values, settings.key)
        if isinstance(record, BadRow) or problem:
            raise SourceError(f"{piece.file.location} at byte {at}: {problem}; fix the teacher's file")
        keys.append(_key(str(record.values[settings.key]), str(record.values["doc_id"])))
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


def _key(query: str, doc_id: str) -> int:
    return pair_key(normalized(query), doc_id)


@dataclass(frozen=True, slots=True)
class TeacherScores:
    """Scores by query and document, in arrays that processes can share."""

    keys: npt.NDArray[np.uint64]  # uint64 [n], ascending
    scores: npt.NDArray[np.float32]  # float32 [n]

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
        key = np.uint64(_key(query, doc_id))
        place = int(np.searchsorted(self.keys, key))
        return float(self.scores[place]) if place < len(self.keys) and self.keys[place] == key else None
