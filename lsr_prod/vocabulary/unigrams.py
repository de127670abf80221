"""The most frequent words of a corpus, counted by Ray Data (esplade-pretraining, B.1)."""

import heapq
import json
import logging
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

from lsr_prod.cluster.data import data_settings, our_error
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError, WorkersLostError
from lsr_prod.terms.words import split_normalized, word_normalizer, word_pieces
from lsr_prod.training_data.records import read_rows
from lsr_prod.training_data.texts import check_bad_rows, cut_slices

__all__ = ["WordCount", "count_words"]

log = logging.getLogger(__name__)

_GOOD, _BAD = "\x00good", "\x00bad"  # rows of either kind travel with the counts; no word holds white space
_SUM = "sum(count)"  # what Ray Data calls it
_PARTITIONS = 8  # groups of words that are added up apart


@dataclass(frozen=True, slots=True)
class WordCount:
    """A word and how often the corpus has it."""

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
    """The most frequent words, ties in the order of their letters. Needs a Ray session.

    Words that the tokenizer cannot spell, an unknown token among their pieces, are left out: no input tells them
    apart (ours).

    Args:
        data: texts.
        tokenizer: of the model that will predict them.
        size: words at most.
        min_count: times that a word has to be there.
        options: options of the object store.

    Raises:
        ConfigError: no word is there as often as that.
        QuarantineOverflowError: more bad rows than ``data.max_bad_fraction`` allows.
        SourceError: a file cannot be read.
        WorkersLostError: tasks, or their machines, died again and again.
    """
    slices = [{"slice": json.dumps(piece.to_json())} for piece in cut_slices(data, options)]
    heap: list[tuple[int, _Reversed]] = []
    rows = {_GOOD: 0, _BAD: 0}
    try:
        # Sums by sorting need no processes of their own, which take longer to start than a small corpus to count.
        with data_settings(shuffle_strategy=ShuffleStrategy.SORT_SHUFFLE_PULL_BASED):
            pieces = ray.data.from_items(slices, override_num_blocks=len(slices))
            parts = pieces.map_batches(_Count(data, tokenizer, options), batch_size=1, batch_format="pyarrow")
            totals = parts.groupby("word", num_partitions=min(_PARTITIONS, len(slices))).sum("count")
            spelt = totals.map_batches(_Spellable(tokenizer, min_count), batch_format="pyarrow", batch_size=None)
            for entry in spelt.iter_rows():
                word, count = str(entry["word"]), int(entry["count"])
                if word in rows:
                    rows[word] = count
                else:
                    _keep(heap, word, count, size)
    except RayError as error:
        if (ours := our_error(error)) is not None:
            raise ours from error
        raise WorkersLostError(
            f"counting words was lost ({type(error).__name__}); look into Ray's logs, then run the job again"
        ) from error
    check_bad_rows(rows[_GOOD], rows[_BAD], data)
    if not heap:
        raise ConfigError("min_count", f"no word of the corpus is there {min_count} times", "give more text, or less")
    found = [WordCount(entry.word, count) for count, entry in sorted(heap, reverse=True)]
    log.info("words counted", extra={"fields": {"texts": rows[_GOOD], "words": len(found), "least": found[-1].count}})
    return found


class _Reversed:
    """A word that is the smaller the later it comes in the order of letters, for a heap that drops the smallest."""

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
    """Function of the read tasks: slices in, counts of their words out."""

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
    """Function of the tasks behind the sums: words that are frequent enough and have no unknown piece."""

    tokenizer: PreTrainedTokenizerFast
    min_count: int

    def __call__(self, totals: pa.Table) -> pa.Table:
        words: list[Any] = totals["word"].to_pylist()
        known = np.array([word in (_GOOD, _BAD) for word in words], dtype=bool)
        frequent = known | (totals[_SUM].to_numpy() >= self.min_count)
        totals, known = totals.filter(pa.array(frequent)), known[frequent]
        unknown = self.tokenizer.unk_token_id
        pieces = word_pieces(totals["word"].to_pylist(), self.tokenizer)
        spelt = np.array([bool(ids) and unknown not in ids for ids in pieces], dtype=bool)
        kept = totals.filter(pa.array(known | spelt))
        return pa.table({"word": kept["word"], "count": pc.cast(kept[_SUM], pa.int64())})
