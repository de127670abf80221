"""The encoder actor: an opened model that encodes blocks of rows, cell by cell.

It has two blocks at a time. While one block has the model, the ids of the next block are looked up, and the encoded
cells are written. A block keeps the model until its last cell is encoded, so blocks end one after the other.

It returns counts and the names of parts to the driver; documents and ids never reach the driver.
"""

import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from lsr_prod.encoding.actors.gpu import require_gpu_runtime
from lsr_prod.encoding.cells.batches import BATCH_SIZE, encode_batches
from lsr_prod.encoding.cells.cell import prepare_cell
from lsr_prod.encoding.cells.cell_writer import CellWriter
from lsr_prod.encoding.cells.lookup import WaveTask, look_up_cells
from lsr_prod.encoding.encoder import EncoderFactory, TextEncoder
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE, IsolatedEncoder
from lsr_prod.encoding.isolation.watchdog import WatchedEncoder
from lsr_prod.encoding.metrics import EncodeMetrics
from lsr_prod.encoding.results import BlockResult, CellOutput, Counts
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.inference import Counters
from lsr_prod.inference.session import Provider
from lsr_prod.storage.counts import StoreCounts, store_counts

BLOCKS_AT_A_TIME = 2
"""Calls of ``EncoderActor.encode`` that run at the same time: one has the model."""

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


class _Metered:
    """Encoder that measures the calls of one block."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self.seconds = 0.0

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        began = time.monotonic()
        try:
            return self._encoder.encode(texts)
        finally:
            self.seconds += time.monotonic() - began


class EncoderActor:
    """Encodes blocks of rows; lives as long as its pool."""

    def __init__(self, model: ModelSettings) -> None:
        self._model = model
        # Opened by the first block: Ray restarts an actor whose constructor crashes without limit.
        self._encoder: TextEncoder | None = None
        self._turn = threading.Lock()  # held by the block that has the model
        self._metrics = EncodeMetrics()
        self._counting = threading.Lock()
        self._reported = store_counts()

    def encode(
        self, task: WaveTask, follows: Mapping[int, Sequence[CellOutput]], *tables: pa.Table, isolated: bool
    ) -> BlockResult:
        """Encode every cell of a block and leave a marker for each."""
        started = time.monotonic()
        cells = [prepare_cell(task, found) for found in look_up_cells(task, pa.concat_tables(tables), follows)]
        batch_size = ISOLATED_BATCH_SIZE if isolated else BATCH_SIZE
        # The writer ends last, without the turn: the next block has the model while the last cell is written.
        with CellWriter(task, follows) as writer, self._turn, self._opened(isolated=isolated) as encoder:
            model, before = _Metered(encoder), self._counters()
            for cell in cells:
                writer.write(cell, *encode_batches(model, cell.texts(), batch_size=batch_size))
            counters = self._counters() - before
        counts = Counts(
            encoded=sum(cell.encoded for cell in writer.results if not cell.reused),
            tokens=counters.tokens,
            padded_tokens=counters.padded_tokens,
            cut_documents=counters.cut,
        )
        counts += Counts.of_store(self._io())
        seconds = time.monotonic() - started
        result = BlockResult(socket.gethostname(), tuple(writer.results), counts, seconds, model.seconds)
        self._metrics.block(result)
        return result

    def _io(self) -> StoreCounts:
        """Return what this process has read and written since the result before."""
        with self._counting:
            now, before = store_counts(), self._reported
            self._reported = now
        return now - before

    @contextmanager
    def _opened(self, *, isolated: bool) -> Iterator[TextEncoder]:
        """Open the model of this process if it is not open, or one in a child process."""
        model = self._model
        if self._encoder is None and model.gpu_provider is not None:
            require_gpu_runtime(model.gpu_provider)  # a node that joined after the job started
        if isolated:
            start_timeout_s = max(_START_TIMEOUT_S, model.batch_timeout_s)
            with IsolatedEncoder(
                model.factory, timeout_s=model.document_timeout_s, start_timeout_s=start_timeout_s
            ) as child:
                yield child
            return
        if self._encoder is None:
            self._encoder = model.factory.open()
        yield WatchedEncoder(self._encoder, model.batch_timeout_s)

    def _counters(self) -> Counters:
        return self._encoder.counters if isinstance(self._encoder, _Counting) else Counters()
