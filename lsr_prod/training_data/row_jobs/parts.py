"""Parquet parts of training rows with their counts in the footer; a part that exists is complete, and never replaced.

The quarantine of a slice is written before its part, so that the counts of a part cover both.
"""

import io
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store

QUARANTINE = "_quarantine"
"""Folder of the bad rows inside the output; folder readers skip names that begin with ``_``."""

T = TypeVar("T")


def part_name(number: int) -> str:
    """Return the file name of the part of a slice."""
    return f"part-{number:06d}.parquet"


def in_batches(rows: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` rows; the last one may be shorter."""
    return iter(lambda: list(islice(rows, size)), [])


def write_part(store: Store, number: int, table: pa.Table, counts: Mapping[str, Any], *, key: bytes) -> None:
    """Write the part of a slice.

    Args:
        store: the output folder.
        number: number of the slice.
        table: the rows.
        counts: counts of the slice, JSON values; equal in every run.
        key: name of the counts in the footer.
    """
    buffer = io.BytesIO()
    footer = {key: json.dumps(counts, sort_keys=True).encode()}
    pq.write_table(table.replace_schema_metadata(footer), buffer, compression="zstd")
    store.put_new(part_name(number), buffer.getvalue())


def read_counts(store: Store, number: int, *, key: bytes, made: str) -> dict[str, Any]:
    """Read the counts of a finished slice from the footer of its part."""
    place = f"{store.uri}/{part_name(number)}"
    try:
        with store.open_reader(part_name(number)) as file:
            footer = pq.read_metadata(file)
        counts: dict[str, Any] = json.loads((footer.metadata or {})[key])
        rows, good, bad = int(counts["rows"]), int(counts[made]), sum(counts["quarantined"].values())
    except (pa.ArrowInvalid, KeyError, ValueError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{place} is damaged ({error}); delete it, then run again") from error
    if footer.num_rows != good or rows != good + bad:
        raise ArtifactError(f"{place} contradicts the row counts in its footer; delete it, then run again")
    return counts
