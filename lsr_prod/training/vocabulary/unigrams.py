"""Counting of the most frequent words of a corpus by tasks of Ray (esplade-pretraining, B.1)."""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray
from transformers import PreTrainedTokenizerFast

from lsr_prod.cluster.workers import group_by_size, merge, split
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.corpus import pinned_file, read, source_rows
from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.words import split_normalized, word_normalizer, word_pieces
from lsr_prod.logs import get_log
from lsr_prod.training.data.training_rows import cut_slices, read_rows, report_bad_rows

log = get_log(__name__)

_PARTITIONS = 8  # partitions of the words in the final sum
_TASK_BYTES = 16_000_000  # of the texts of a task, about


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
    """
    pieces = cut_slices(data, options)
    read.require_source_on_nodes(dict.fromkeys(piece.file for piece in pieces), field="data.paths")
    groups = [*group_by_size(pieces, lambda piece: piece.size, _TASK_BYTES)]
    partitions = min(_PARTITIONS, len(groups))
    reader = ray.put(_Reader(data, tokenizer, options, partitions))
    counted = split(_count, [(reader, group) for group in groups], partitions, task="counting words", on_ray=True)
    good, bad = (sum(rows[place] for rows in counted.notes) for place in range(2))
    report_bad_rows(good, bad, data)
    shared = (tokenizer, min_count, size)
    parts = [*merge(_most_frequent, shared, counted, partitions, task="adding counts of words", on_ray=True)]
    found = sorted((entry for part in parts for entry in part), key=_rank)[:size]
    if not found:
        raise ConfigError("min_count", f"no word of the corpus occurs {min_count} times", "give more text, or lower it")
    log.info("words counted", extra={"fields": {"texts": good, "words": len(found), "least": found[-1].count}})
    return found


def _rank(entry: WordCount) -> tuple[int, str]:
    return -entry.count, entry.word


@dataclass(frozen=True, slots=True)
class _Reader:
    """Arguments of the tasks that count words."""

    data: TrainingDataSettings
    tokenizer: PreTrainedTokenizerFast
    options: dict[str, str]
    partitions: int


def _count(reader: _Reader, pieces: Sequence[pinned_file.Slice]) -> tuple[list[pa.Table], tuple[int, int]]:
    """Return the counts of words (word, count) by partition, and the numbers of good and bad rows."""
    counts: Counter[str] = Counter()
    rows = Counter[bool]()
    normalizer = word_normalizer(reader.tokenizer.backend_tokenizer)
    for text in (text for piece in pieces for text in _texts(reader, piece, rows)):
        counts.update(split_normalized(text, normalizer))
    table = pa.table({"word": pa.array(counts, pa.string()), "count": pa.array(counts.values(), pa.int64())})
    partition = pa.array(
        (zlib.crc32(word.encode()) % reader.partitions for word in counts), pa.int32(), size=len(counts)
    )
    return [table.filter(pc.equal(partition, number)) for number in range(reader.partitions)], (rows[True], rows[False])


def _texts(reader: _Reader, piece: pinned_file.Slice, rows: Counter[bool]) -> Iterator[str]:
    for _, row in read_rows(piece, reader.data, reader.options, needs_negative=False):
        rows[not isinstance(row, source_rows.BadRow)] += 1
        if not isinstance(row, source_rows.BadRow):
            yield row.documents[0]


def _most_frequent(tokenizer: PreTrainedTokenizerFast, min_count: int, size: int, *parts: pa.Table) -> list[WordCount]:
    """Return the most frequent words of a partition that occur often enough and have no unknown sub-token."""
    totals = pa.concat_tables(parts).group_by("word").aggregate([("count", "sum")])
    totals = totals.filter(pc.greater_equal(totals["count_sum"], min_count))
    pieces = word_pieces(totals["word"].to_pylist(), tokenizer)
    spellable = np.array([bool(ids) and tokenizer.unk_token_id not in ids for ids in pieces], dtype=bool)
    kept = totals.filter(pa.array(spellable))
    return sorted(map(WordCount, kept["word"].to_pylist(), kept["count_sum"].to_pylist()), key=_rank)[:size]
