"""Rows of training data on the driver: all in order, or a sample, without holding the data in memory."""

from collections.abc import Iterator
from contextlib import ExitStack

from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log
from lsr_prod.training_data import bad_rows
from lsr_prod.training_data.records import cut_data, pin_files, read_rows
from lsr_prod.training_data.rows import TrainingRow

log = get_log(__name__)

_SLICE_BYTES = 16_000_000  # of one task
_SAMPLED_SLICES = 64  # number of places that a sample is taken from


def cut_slices(data: TrainingDataSettings, options: dict[str, str], *, size: int = _SLICE_BYTES) -> list[Slice]:
    """Cut the pinned files of training data into slices of about ``size`` bytes; 0 chooses a size for a sample."""
    files = pin_files(data, options)
    if not size:
        size = max(1 << 16, sum(file.size for file in files) // _SAMPLED_SLICES)
    return list(cut_data(files, data, size, options))


def read_good_rows(data: TrainingDataSettings, options: dict[str, str]) -> Iterator[TrainingRow]:
    """Yield every good row in order."""
    good = bad = 0
    for piece in cut_slices(data, options):
        for _, row in read_rows(piece, data, options, needs_negative=False):
            if isinstance(row, BadRow):
                bad += 1
                continue
            good += 1
            yield row
    check_bad_rows(good, bad, data)


def sample_rows(data: TrainingDataSettings, options: dict[str, str], count: int) -> list[TrainingRow]:
    """Return good rows from places spread evenly over the data; deterministic."""
    pieces, bad = cut_slices(data, options, size=0), 0
    found: list[TrainingRow] = []
    step = max(1, -(-len(pieces) // _SAMPLED_SLICES))
    for first in range(step):
        readers = [read_rows(piece, data, options, needs_negative=False) for piece in pieces[first::step]]
        bad += _take_in_turn(readers, found, count)
    check_bad_rows(len(found), bad, data)
    if not found:
        raise ConfigError("data.paths", f"{', '.join(data.paths)} has no good row", "give data that has rows")
    return found


def check_bad_rows(good: int, bad: int, data: TrainingDataSettings) -> None:
    """Raise if data has too many bad rows; the quarantine of a training set would name them."""
    bad_rows.check_bad_rows(good + bad, {"": bad}, data)
    if bad:
        log.warning("bad rows skipped", extra={"fields": {"bad": bad, "good": good}})


def _take_in_turn(
    readers: list[Iterator[tuple[int, TrainingRow | BadRow]]], found: list[TrainingRow], count: int
) -> int:
    """Append a row of each reader in turn until there are ``count``; return the number of bad rows."""
    bad = 0
    with ExitStack() as stack:
        for reader in readers:
            stack.callback(reader.close)  # type: ignore[attr-defined]
        while readers and len(found) < count:
            for reader in list(readers):
                if len(found) == count:
                    break
                _, row = next(reader, (0, None))
                if row is None:
                    readers.remove(reader)
                elif isinstance(row, BadRow):
                    bad += 1
                else:
                    found.append(row)
    return bad
