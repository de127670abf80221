"""One wave on Ray Data: read and judge slices, bring every bucket together, encode on an actor pool.

Reading with its shuffle ends before the actors start. The shuffle is a barrier anyway, and a pool that holds every core
while the shuffle's tasks wait for one would wait for ever (it does, on one core and on two).
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.actor import BucketEncoder, WaveTask
from lsr_prod.encoding.commit import BucketResult, WaveResult
from lsr_prod.encoding.parts import Part
from lsr_prod.encoding.plan import Slice
from lsr_prod.encoding.read import Reader
from lsr_prod.encoding.rows import row_schema
from lsr_prod.errors import ConfigError

__all__ = ["actor_count", "run_wave"]

log = logging.getLogger(__name__)

# The shuffle cuts a partition above this size, and a bucket would come in pieces (which the commit refuses).
_LARGEST_BUCKET_BYTES = 1 << 30


def actor_count(settings: EncodeSettings) -> int:
    """Actors of the pool: as set, or one for every ``threads_per_actor`` cores of the cluster.

    Raises:
        ConfigError: not even one actor fits.
    """
    cores = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
    if settings.threads_per_actor > cores:
        raise ConfigError(
            "encode.threads_per_actor", f"{settings.threads_per_actor} threads on {cores} cores", "lower it"
        )
    fitting = cores // settings.threads_per_actor
    return fitting if settings.actors is None else min(settings.actors, fitting)


def run_wave(slices: tuple[Slice, ...], reader: Reader, task: WaveTask, actors: int) -> WaveResult:
    """Encode a wave; its parts lie in the tables' folders afterwards and no commit names them.

    Args:
        slices: what the wave reads.
        reader: of the plan.
        task: what the actors need.
        actors: size of the pool.
    """
    with _data_settings():
        pieces = ray.data.from_items([piece.to_json() for piece in slices], override_num_blocks=len(slices))
        rows = pieces.map_batches(_ReadSlices(reader), batch_size=1, batch_format="pyarrow")
        # Some buckets more than actors are enough to keep all busy; each partition is a task.
        partitions = min(task.properties.buckets, 4 * actors)
        shuffled = rows.repartition(partitions, keys=["bucket"]).materialize()
        described = shuffled.map_batches(
            BucketEncoder,
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors),
            num_cpus=task.threads,
            fn_constructor_args=(task,),
        ).take_all()
    return WaveResult(task.wave, tuple(_result(row) for row in described))


@contextmanager
def _data_settings() -> Iterator[None]:
    """Ray Data's settings for a wave; those of other datasets in this process come back afterwards."""
    context = DataContext.get_current()
    wanted = {
        "enable_progress_bars": sys.stderr.isatty(),
        "print_on_execution_start": False,
        "target_max_block_size": _LARGEST_BUCKET_BYTES,
        "max_errored_blocks": 0,  # an errored block would drop its rows without an exception
    }
    before = {name: getattr(context, name) for name in wanted}
    for name, value in wanted.items():
        setattr(context, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)


@dataclass(frozen=True, slots=True)
class _ReadSlices:
    """Function of the read tasks: a batch of slices in, tables of rows out."""

    reader: Reader

    def __call__(self, slices: pa.Table) -> Iterator[pa.Table]:
        yield row_schema(self.reader.source.stored_fields).empty_table()  # a slice without a row has columns too
        for fields in slices.to_pylist():
            yield from self.reader.read(Slice.from_json(fields))


def _result(row: Mapping[str, Any]) -> BucketResult:
    return BucketResult(
        bucket=row["bucket"],
        rows_in=row["rows_in"],
        part=Part(**row["part"]) if row["part"] else None,
        quarantine=Part(**row["quarantine"]) if row["quarantine"] else None,
        reasons=json.loads(row["reasons"]),
        clipped=row["clipped"],
    )
