"""Access to an index for jobs that publish a changed version without building shards."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lsr_prod.cluster.nodes import require_shared_folders
from lsr_prod.cluster.workers import Workers
from lsr_prod.config import Deployment
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute
from lsr_prod.storage.index_upload import adopt_current, upload_current


@contextmanager
def index_to_change(deployment: Deployment) -> Iterator[tuple[Store, Workers]]:
    """Yield the index, and workers for it; with ``index.publish_to``, adopt its publication, and upload the new one."""
    settings = deployment.index
    assert settings is not None
    index = Store(absolute(settings.output), deployment.storage.options)
    target = Store(settings.publish_to, deployment.storage.options) if settings.publish_to else None
    if target is not None:
        adopt_current(Path(index.uri), target)
    with Workers(deployment.ray, check=partial(require_shared_folders, {"index.output": settings.output})) as workers:
        yield index, workers
    if target is not None:
        upload_current(Path(index.uri), target)
