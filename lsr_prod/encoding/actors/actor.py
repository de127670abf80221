"""The encoder actor: an opened model that encodes blocks of rows, cell by cell.

It has two blocks at a time. While one block has the model, the ids of the next block are looked up, and the encoded
cells are written. A block keeps the model until its last cell is encoded, so blocks end one after the other.

It returns counts and the names of parts to the driver; documents and ids never reach the driver.

``check_gpu_nodes`` checks that the ONNX Runtime of GPU nodes can use their GPUs.

``provider: auto`` takes the first provider that is available. On a node with a GPU and a runtime for CPUs, that would
be the CPU, while the actor reserves the GPU: the job would be many times slower, without a message.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import pyarrow as pa
import ray
from ray.exceptions import ActorUnschedulableError, RayActorError
from ray.util.metrics import Counter, Gauge
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lsr_prod.cluster.tasks import Needs, remote, worker_errors
from lsr_prod.encoding.actors.places import PoolSize
from lsr_prod.encoding.cells.cell import BATCH_SIZE, CellWriter, encode_batches, prepare_cell
from lsr_prod.encoding.cells.lookup import WaveTask, look_up_cells
from lsr_prod.encoding.encoder import EncoderFactory, TextEncoder
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE, IsolatedEncoder, WatchedEncoder
from lsr_prod.encoding.results import BlockResult, CellOutput, Counts
from lsr_prod.errors import ConfigError
from lsr_prod.inference import Counters
from lsr_prod.inference.session import Provider, load_onnxruntime
from lsr_prod.storage.remote import StoreCounts, store_counts

_WANTED: dict[Provider, tuple[str, ...]] = {
    "auto": ("CUDAExecutionProvider", "TensorrtExecutionProvider"),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider",),
}
BLOCKS_AT_A_TIME = 2
"""Calls of ``EncoderActor.encode`` that run at the same time: one has the model."""
_START_TIMEOUT_S = 300.0  # of the model in a child process
LOST = (RayActorError, ActorUnschedulableError)
"""Errors of an actor that died; the second: its node has left before the actor started."""
_PAUSE_S = 0.1  # between two questions to an actor that is restarted
_KNOWN = 64  # newest durations of blocks
_ENOUGH = 4  # of them, before a block is late
_TIMES = 1.5  # longer than the median: an idle encoder has nothing better to do
_LEAST_S = 30.0  # that a block is not late for


def check_gpu_nodes(provider: Provider, nodes: Sequence[str]) -> None:
    """Ask each node for the providers of its ONNX Runtime; needs a connection to Ray."""
    with worker_errors("the check of ONNX Runtime on GPU nodes"):
        ray.get([remote(require_gpu_runtime, Needs(cpus=0, node=node))(provider) for node in sorted(set(nodes))])


def require_gpu_runtime(provider: Provider, available: Sequence[str] | None = None) -> None:
    """Refuse the ONNX Runtime of this node if it has no provider for GPUs."""
    found: Sequence[str] = load_onnxruntime().get_available_providers() if available is None else available
    if not set(_WANTED[provider]).isdisjoint(found):
        return
    raise ConfigError(
        "encode.provider",
        f"{provider}: node {_address()} has a GPU, but its ONNX Runtime has only {', '.join(found)}",
        "install onnxruntime-gpu in place of onnxruntime there, or set it to cpu",
    )


def _address() -> str:
    """Return the address by which Ray names this node, or the name of the machine outside of Ray."""
    if not ray.is_initialized():
        return socket.gethostname()
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model of an actor and its time limits."""

    factory: EncoderFactory  # opens the encoder
    batch_timeout_s: float  # longest call of the model in the actor's own process, in seconds
    document_timeout_s: float  # longest call of the model in a child process, in seconds
    gpu_provider: Provider | None = None  # ``encode.provider`` of an actor that reserves a GPU; None: it reserves none


class _EncodeMetrics:
    """Metrics of an encoder actor for the Prometheus endpoint of Ray, which computes rates."""

    def __init__(self) -> None:
        self._documents = Counter("lsr_prod_encode_documents", "documents encoded")
        self._tokens = Counter("lsr_prod_encode_tokens", "tokens that the model read, padding excluded")
        self._padding = Gauge("lsr_prod_encode_padding_share", "share of padding in the batches of the last block")
        self._docs_per_s = Gauge("lsr_prod_encode_docs_per_s", "documents per second in the model, last block")

    def block(self, result: BlockResult) -> None:
        """Record a finished block."""
        counts = result.counts
        if counts.encoded:
            self._documents.inc(counts.encoded)
            self._docs_per_s.set(counts.encoded / max(result.model_seconds, 1e-9))
        if counts.tokens:
            self._tokens.inc(counts.tokens)
            self._padding.set(counts.padding_share)


class EncoderActor:
    """Encodes blocks of rows; lives as long as its pool."""

    def __init__(self, model: ModelSettings) -> None:
        self._model = model
        # Opened by the first block: Ray restarts an actor whose constructor crashes without limit.
        self._encoder: TextEncoder | None = None
        self._turn = threading.Lock()  # held by the block that has the model
        self._metrics = _EncodeMetrics()
        self._counting = threading.Lock()
        self._reported = store_counts()

    def encode(
        self, task: WaveTask, follows: Mapping[int, Sequence[CellOutput]], *tables: pa.Table, isolated: bool
    ) -> BlockResult:
        """Encode every cell of a block and leave a marker for each."""
        cells = [prepare_cell(task, found) for found in look_up_cells(task, pa.concat_tables(tables), follows)]
        batch_size = ISOLATED_BATCH_SIZE if isolated else BATCH_SIZE
        # The writer ends last, without the turn: the next block has the model while the last cell is written.
        with CellWriter(task, follows) as writer, self._turn, self._opened(isolated=isolated) as encoder:
            seconds, before = 0.0, self._counters()
            for cell in cells:
                texts, began = cell.texts(), time.monotonic()
                vectors, failures = encode_batches(encoder, texts, batch_size=batch_size)
                seconds += time.monotonic() - began
                writer.write(cell, vectors, failures)
            counters = self._counters() - before
        counts = Counts(
            encoded=sum(cell.encoded for cell in writer.results if not cell.reused),
            tokens=counters.tokens,
            padded_tokens=counters.padded_tokens,
            cut_documents=counters.cut,
        )
        counts += Counts.of_store(self._io())
        result = BlockResult(socket.gethostname(), tuple(writer.results), counts, seconds)
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
        counters: Counters = getattr(self._encoder, "counters", Counters())  # other encoders do not count
        return counters


@dataclass(eq=False, slots=True)
class Member:
    """An actor, its node, and its state."""

    actor: Any  # handle
    node: str  # that it was started on
    ready: bool = False  # it runs; an actor that starts, or that Ray restarts, gets no calls: they would fail at once
    starting: Any = None  # reference of the call that ends when it runs; None: not called yet
    ask_at: float = 0.0  # time of that call
    load: int = 0  # unfinished calls
    leaving: bool = False  # it gets no more calls


def start_member(size: PoolSize, model: ModelSettings, node: str, *, pinned: bool) -> Member:
    """Start an actor."""
    actor: Any = ray.remote(EncoderActor)
    options = actor.options(
        **size.needs.reserved,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=BLOCKS_AT_A_TIME,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=not pinned),
    )
    return Member(options.remote(model), node)


def ask(member: Member) -> None:
    """Find out whether an actor runs, and ask again some time after a call that failed, because it is restarted.

    A pinned actor is never restarted on another node: a node without cores, such as the head, must not encode.
    """
    if member.starting is None and time.monotonic() >= member.ask_at:
        member.starting = member.actor.__ray_ready__.remote()
    if member.starting is None or not ray.wait([member.starting], timeout=0)[0]:
        return
    try:
        ray.get(member.starting)
        member.ready = True
    except LOST:
        member.ask_at = time.monotonic() + _PAUSE_S
    member.starting = None


class BlockDurations:
    """Durations of the blocks that are finished."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KNOWN)

    def add(self, seconds: float) -> None:
        """Add the duration of a block."""
        self._seconds.append(seconds)

    def is_late(self, seconds: float) -> bool:
        """Return whether a block that has run for so long runs far longer than the finished ones."""
        if len(self._seconds) < _ENOUGH:
            return False
        return seconds > max(_LEAST_S, _TIMES * median(self._seconds))
