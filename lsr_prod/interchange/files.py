"""Files for other tools: written as a stream, whole or not at all, compressed if the name ends in ``.gz``."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from lsr_prod.storage import drafts


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a draft file that gets its name when the block ends without an error."""
    with drafts.new_file(path) as raw:
        if not path.name.endswith(".gz"):
            yield raw
            return
        # No time and no name inside: equal content makes equal files.
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
            yield cast("IO[bytes]", file)
