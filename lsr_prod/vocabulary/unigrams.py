"""Counting of the most frequent words of a corpus with Ray Data (esplade-pretraining, B.1)."""

import heapq
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data.context import ShuffleStrategy
from ray.exceptions import RayError
from transformers import PreTrainedTokenizerFast

from lsr_prod.cluster.data import data_settings
from lsr_prod.cluster.errors import describe, our_error
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.on_nodes import require_source_on_nodes
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError, WorkersLostError
from lsr_prod.logs import get_log
from lsr_prod.terms.words import split_normalized, word_normalizer, word_pieces
from lsr_prod.training_data.records import read_rows
from lsr_prod.training_data.texts import check_bad_rows, cut_slices

__all__ = ["WordCount", "count_words"]

log = get_log(__name__)

_GOOD, _BAD = "\x00good", "\x00bad"  # row counts are sent along with word counts; the names cannot be words
_SUM = "sum(count)"  # name given by Ray Data
_PARTITIONS = 8  # partitions of the words in the final sum


@dataclass(frozen=True, slots=True)
class WordCount:
    """A word and its count in the corpus."""

    word: str
    count: int


def count_words(
    data: TrainingDataSettings,
    tokenizer: PreTrainedTokenizerFast,
    *,
    size: int,
    min_count: int,
    options: dict[str, str],
) -> list[WordCount]:
    """Return the most frequent words; ties are in alphabetical order. Needs a Ray session.

    Words with an unknown token among their sub-tokens are left out, because no input can distinguish them (ours).

    Args:
        data: texts.
        tokenizer: of the model that will predict the words.
        size: maximum number of words.
        min_count: minimum count of a word.
        options: options of the object store.

    Raises:
        ConfigError: no word occurs ``min_count`` times, or a node lacks a local file.
        QuarantineOverflowError: more bad rows than ``data.max_bad_fraction`` allows.
        SourceError: a file cannot be read.
        WorkersLostError: tasks or machines failed repeatedly.
    """
    pieces = cut_slices(data, options)
    require_source_on_nodes(dict.fromkeys(piece.file for piece in pieces), field="data.paths")
    slices = [{"slice": json.dumps(piece.to_json())} for piece in pieces]
    heap: list[tuple[int, _Reversed]] = []
    rows = {_GOOD: 0, _BAD: 0}
    try:
        # Sums by sorting need no separate processes, whose start takes longer than counting a small corpus.
        with data_settings(shuffle_strategy=ShuffleStrategy.SORT_SHUFFLE_PULL_BASED):
            tasks = ray.data.from_items(slices, override_num_blocks=len(slices))
            parts = tasks.map_batches(_Count(data, tokenizer, options), batch_size=1, batch_format="pyarrow")
            totals = parts.groupby("word", num_partitions=min(_PARTITIONS, len(slices))).sum("count")
            spellable = totals.map_batches(_Spellable(tokenizer, min_count), batch_format="pyarrow", batch_size=None)
            for entry in spellable.iter_rows():
                word, count = str(entry["word"]), int(entry["count"])
                if word in rows:
                    rows[word] = count
                else:
                    _keep(heap, word, count, size)
    except RayError as error:
        if (ours := our_error(error)) is not None:
            raise ours from error
        raise WorkersLostError(
            f"the tasks that count words failed by {describe(error)}; read Ray's logs, then run the job again"
        ) from error
    check_bad_rows(rows[_GOOD], rows[_BAD], data)
    if not heap:
        raise ConfigError("min_count", f"no word of the corpus occurs {min_count} times", "give more text, or lower it")
    found = [WordCount(entry.word, count) for count, entry in sorted(heap, reverse=True)]
    log.info("words counted", extra={"fields": {"texts": rows[_GOOD], "words": len(found), "least": found[-1].count}})
    return found


class _Reversed:
    """A word with reversed alphabetical order, for a heap that drops the smallest entry."""

    __slots__ = ("word",)

    def __init__(self, word: str) -> None:
        self.word = word

    def __lt__(self, other: "_Reversed") -> bool:
        return self.word > other.word

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.word == other.word

    def __hash__(self) -> int:
        return hash(self.word)


def _keep(heap: list[tuple[int, _Reversed]], word: str, count: int, size: int) -> None:
    entry = (count, _Reversed(word))
    if len(heap) < size:
        heapq.heappush(heap, entry)
    elif heap[0] < entry:
        heapq.heapreplace(heap, entry)


@dataclass(frozen=True, slots=True)
class _Count:
    """Function of the read tasks: counts the words of slices."""

    data: TrainingDataSettings
    tokenizer: PreTrainedTokenizerFast
    options: dict[str, str]

    def __call__(self, tasks: pa.Table) -> pa.Table:
        counts: Counter[str] = Counter()
        normalizer = word_normalizer(self.tokenizer.backend_tokenizer)
        for fields in tasks["slice"].to_pylist():
            for text in self._texts(Slice.from_json(json.loads(fields)), counts):
                counts.update(split_normalized(text, normalizer))
        return pa.table({"word": pa.array(counts, pa.string()), "count": pa.array(counts.values(), pa.int64())})

    def _texts(self, piece: Slice, counts: Counter[str]) -> Iterator[str]:
        for _, row in read_rows(piece, self.data, self.options, needs_negative=False):
            counts[_BAD if isinstance(row, BadRow) else _GOOD] += 1
            if not isinstance(row, BadRow):
                yield row.documents[0]


@dataclass(frozen=True, slots=True)
class _Spellable:
    """Function of the tasks after the sums: keeps words that are frequent enough and have no unknown sub-token."""

    tokenizer: PreTrainedTokenizerFast
    min_count: int

    def __call__(self, totals: pa.Table) -> pa.Table:
        words: list[Any] = totals["word"].to_pylist()
        known = np.array([word in (_GOOD, _BAD) for word in words], dtype=bool)
        frequent = known | (totals[_SUM].to_numpy() >= self.min_count)
        totals, known = totals.filter(pa.array(frequent)), known[frequent]
        unknown = self.tokenizer.unk_token_id
        pieces = word_pieces(totals["word"].to_pylist(), self.tokenizer)
        spellable = np.array([bool(ids) and unknown not in ids for ids in pieces], dtype=bool)
        kept = totals.filter(pa.array(known | spellable))
        return pa.table({"word": kept["word"], "count": pc.cast(kept[_SUM], pa.int64())})
