"""Bad rows of training data: their place in the quarantine, and the limit of their share."""

from collections.abc import Mapping

from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import QuarantineOverflowError
from lsr_prod.tables.quarantine import BadRowWriter


def quarantine(writer: BadRowWriter, piece: Slice, position: int, row: BadRow) -> None:
    """Add a bad row of a slice to the quarantine."""
    writer.add(row, ordinal=piece.ordinal, key=piece.file.key, source=piece.file.location, position=position)


def check_bad_rows(
    rows: int, bad: Mapping[str, int], data: TrainingDataSettings, *, field: str = "data", folder: str | None = None
) -> None:
    """Raise if data has too many bad rows.

    Args:
        rows: number of rows, good and bad.
        bad: number of bad rows by reason; one reason may be empty.
        data: settings with the limit.
        field: path of these settings, for the message.
        folder: quarantine that has the bad rows.
    """
    if (number := sum(bad.values())) > data.max_bad_fraction * rows:
        reasons = ", ".join(f"{reason} {count}" for reason, count in bad.items() if reason)
        raise QuarantineOverflowError(
            f"{number} of {rows} rows are bad{f' ({reasons})' if reasons else ''}, {field}.max_bad_fraction is "
            f"{data.max_bad_fraction:g}; {f'look at {folder}, ' if folder else ''}fix the data or {field}.columns, or "
            "raise the limit"
        )
