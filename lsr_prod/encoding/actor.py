"""The encoder actor: an opened model that encodes blocks of rows, cell by cell.

It returns counts and the names of parts to the driver; documents and ids never reach the driver.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import pyarrow as pa

from lsr_prod.encoding.batches import encode_batches
from lsr_prod.encoding.cell import Encode, encode_cell
from lsr_prod.encoding.commit.markers import mark_finished
from lsr_prod.encoding.encoder import EncoderFactory, TextEncoder
from lsr_prod.encoding.gpu import require_gpu_runtime
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE, IsolatedEncoder
from lsr_prod.encoding.isolation.watchdog import WatchedEncoder
from lsr_prod.encoding.lookup import Pending, WaveTask, look_up_cells
from lsr_prod.encoding.metrics import EncodeMetrics
from lsr_prod.encoding.results import BlockResult, CellResult
from lsr_prod.inference import Counters
from lsr_prod.inference.session import Provider

__all__ = ["EncoderActor", "ModelSettings"]

_START_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model of an actor and its time limits.

    Attributes:
        factory: opens the encoder.
        batch_timeout_s: longest call of the model in the actor's own process, in seconds.
        document_timeout_s: longest call of the model in a child process, in seconds.
        gpu_provider: ``encode.provider`` of an actor that reserves a GPU; None: it reserves none.
    """

    factory: EncoderFactory
    batch_timeout_s: float
    document_timeout_s: float
    gpu_provider: Provider | None = None


@runtime_checkable
class _Counting(Protocol):
    @property
    def counters(self) -> Counters: ...


class EncoderActor:
    """Encodes blocks of rows; lives as long as its pool."""

    def __init__(self, model: ModelSettings) -> None:
        self._model = model
        # Opened by the first block: Ray restarts an actor whose constructor crashes without limit.
        self._encoder: TextEncoder | None = None
        self._metrics = EncodeMetrics()

    def encode(
        self, task: WaveTask, pending: Mapping[int, Sequence[Pending]], *tables: pa.Table, isolated: bool
    ) -> BlockResult:
        """Encode every cell of a block and leave a marker for each.

        Args:
            task: the wave.
            pending: cell -> its results in earlier waves that the snapshot of the wave does not have.
            *tables: tables of ``rows.row_schema``, together with all rows of its cells.
            isolated: run the model in a child process, because an earlier process died on this block.

        Raises:
            IncompleteWaveError: rows of a cell were lost between reading and encoding.
            ConfigError: the actor reserves a GPU, but the ONNX Runtime of its node cannot use it.
        """
        model, rows = self._model, pa.concat_tables(tables)
        if self._encoder is None and model.gpu_provider is not None:
            require_gpu_runtime(model.gpu_provider)  # a node that joined after the job started
        if not isolated and self._encoder is None:
            self._encoder = model.factory.open()
        started, before = time.monotonic(), self._counters()
        if self._encoder is None or isolated:
            start_timeout_s = max(_START_TIMEOUT_S, model.batch_timeout_s)
            with IsolatedEncoder(
                model.factory, timeout_s=model.document_timeout_s, start_timeout_s=start_timeout_s
            ) as child:
                cells = _encode_cells(
                    task, rows, pending, partial(encode_batches, child, batch_size=ISOLATED_BATCH_SIZE)
                )
        else:
            watched = WatchedEncoder(self._encoder, model.batch_timeout_s)
            cells = _encode_cells(task, rows, pending, partial(encode_batches, watched))
        result = BlockResult(
            node=socket.gethostname(),
            cells=cells,
            counters=self._counters() - before,
            seconds=time.monotonic() - started,
        )
        self._metrics.block(result)
        return result

    def _counters(self) -> Counters:
        return self._encoder.counters if isinstance(self._encoder, _Counting) else Counters()


def _encode_cells(
    task: WaveTask, rows: pa.Table, pending: Mapping[int, Sequence[Pending]], encode: Encode
) -> tuple[CellResult, ...]:
    results = []
    for found in look_up_cells(task, rows, pending):
        follows = tuple((result.wave, result.digest) for result in pending.get(found.cell, ()))
        result = encode_cell(task, found, encode, follows)
        results.append(mark_finished(task.table, task.quarantine, task.plan, task.wave, result))
    return tuple(results)
