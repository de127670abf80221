"""Settings of gunicorn for the example backend."""

from typing import Any

from prometheus_client import multiprocess

workers = 2
worker_class = "uvicorn.workers.UvicornWorker"
# Each worker opens the index itself: a searcher opened before the fork would have lost its threads. The memory maps of
# all workers share the page cache.
preload_app = False
graceful_timeout = 30


def child_exit(_server: Any, worker: Any) -> None:
    """Remove the metrics of a worker that ended."""
    multiprocess.mark_process_dead(worker.pid)
