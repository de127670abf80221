"""Files for other tools: local, streamed, whole or absent, and never in the place of one that is there."""

import gzip
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from lsr_prod.errors import StorageError

__all__ = ["new_file"]


@contextmanager
def new_file(path: Path, *, replace: bool = False) -> Iterator[IO[bytes]]:
    """A draft to write to, which gets its name once the block ends well.

    Args:
        path: the file; what ends in ``.gz`` is compressed. Its folder is made if absent.
        replace: take the place of a file that is there.

    Raises:
        StorageError: there is something at ``path``, or the disk fails.
    """
    draft = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as raw:
            if path.name.endswith(".gz"):
                # No time and no name inside: equal vectors make equal files.
                with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
                    yield cast("IO[bytes]", file)
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)  # unlike a rename, never replaces
    except StorageError:
        raise
    except FileExistsError as error:
        raise StorageError(f"there is something at {path} already; give a new path, or delete it") from error
    except OSError as error:
        raise StorageError(f"{path} could not be written ({error}); mend the disk, then run again") from error
    finally:
        draft.unlink(missing_ok=True)
