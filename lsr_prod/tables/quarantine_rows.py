"""Read the rows of a quarantine: those of committed waves, and those of waves that were not committed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.tables.quarantine import PART_SCHEMA
from lsr_prod.tables.table import open_table

COMMITTED = "committed"
NOT_COMMITTED = "not committed"
WITHOUT_LOG = "no log"
"""State of the parts of an import, a training set or mined negatives, whose quarantine is no table."""

_PART = re.compile(r"plan=([^/]+)/wave=(\d+)/[^/]+\.parquet")
_BATCH_ROWS = 1024


@dataclass(frozen=True, slots=True)
class QuarantinePart:
    """A part of a quarantine.

    Attributes:
        path: inside the quarantine.
        plan: digest of the plan.
        wave: number of the wave.
        state: ``COMMITTED``, ``NOT_COMMITTED`` (the job stopped before the commit, or still encodes the wave) or
            ``WITHOUT_LOG``.
    """

    path: str
    plan: str
    wave: int
    state: str


def quarantine_parts(store: Store) -> list[QuarantinePart]:
    """Return the parts of a quarantine, without those that a later attempt at their wave replaced."""
    listed = {name: match for name in store.names() if (match := _PART.fullmatch(name))}
    table = open_table(store)  # after the listing: a part that is committed in between is not shown as not committed
    if table is None:
        if not listed:
            raise ArtifactError(f"{store.uri} is no quarantine; give the folder or URI of encode.quarantine")
        return [QuarantinePart(path, match[1], int(match[2]), WITHOUT_LOG) for path, match in listed.items()]
    if "plan" not in table.partition_by:
        raise ArtifactError(
            f"{store.uri} is a table of documents; give the folder of its quarantine, by default {store.uri}_quarantine"
        )
    parts = [
        QuarantinePart(file.path, file.partition["plan"] or "", int(file.partition["wave"] or 0), COMMITTED)
        for file in table.files()
    ]
    committed = {part.path for part in parts}
    for path, match in listed.items():
        done = table.transaction_version(match[1])
        if path not in committed and (done is None or done < int(match[2])):
            parts.append(QuarantinePart(path, match[1], int(match[2]), NOT_COMMITTED))
    return sorted(parts, key=lambda part: (part.plan, part.wave, part.path))


def quarantined_rows(store: Store, part: QuarantinePart) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part by column name; a batch of them is in memory at a time.

    A part that was deleted meanwhile has no rows.
    """
    try:
        with store.open_reader(part.path) as data:
            for batch in pq.ParquetFile(data).iter_batches(_BATCH_ROWS):
                yield from batch.select(PART_SCHEMA.names).to_pylist()
    except FileNotFoundError:
        return
    except pa.ArrowInvalid as error:
        raise ArtifactError(f"{store.uri}/{part.path} is damaged ({error}); restore or delete it") from error
