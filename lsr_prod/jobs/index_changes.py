"""Access to an index for jobs that publish a changed version without building shards."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from lsr_prod.cluster.nodes import require_shared_folders
from lsr_prod.cluster.workers import Workers
from lsr_prod.config import Deployment
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute


@contextmanager
def index_to_change(deployment: Deployment) -> Iterator[tuple[Store, Workers]]:
    """Yield the index, and workers for it."""
    settings = deployment.index
    assert settings is not None
    index = Store(absolute(settings.output), deployment.storage.options)
    with Workers(deployment.ray, check=partial(require_shared_folders, {"index.output": settings.output})) as workers:
        yield index, workers
