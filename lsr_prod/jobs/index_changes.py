"""Access to an index folder for jobs that publish a changed version without building shards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lsr_prod.config import Deployment
from lsr_prod.storage import Store
from lsr_prod.storage.index_upload import adopt_current, upload_current

__all__ = ["index_to_change"]


@contextmanager
def index_to_change(deployment: Deployment) -> Iterator[Path]:
    """Yield the index folder; publications of ``index.publish_to`` are read before and the new one is uploaded after.

    Args:
        deployment: sections ``index`` and ``storage``.
    """
    settings = deployment.index
    assert settings is not None
    index = Path(settings.output).absolute()
    target = Store(settings.publish_to, deployment.storage.options) if settings.publish_to else None
    if target is not None:
        adopt_current(index, target)
    yield index
    if target is not None:
        upload_current(index, target)
