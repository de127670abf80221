"""Pin files: the digest of the content of a local file, the ETag of an object, and what a reader verifies first."""

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, is_remote
from lsr_prod.storage.digest_cache import DigestCache, FileState

Target = tuple[str, Entry, str]
"""Folder, entry and format of a file."""

# A file that was written just now is hashed again by every reader of a slice. Of a large file, which has many slices,
# the time of the last write is waited for instead.
_LARGE = 64_000_000
_SETTLING_S = 2.0


def pin_files(targets: Iterator[Target]) -> Iterator[SourceFile]:
    """Yield pinned files: objects have an ETag in the listing; local files are hashed on all cores, a few ahead.

    A local file that is unchanged since an earlier run is not read (``DigestCache``).
    """
    first = next(targets, None)
    if first is None:
        return
    everything = chain([first], targets)
    if is_remote(first[0]):
        for uri, entry, file_format in everything:
            etag = _etag(uri, entry)
            yield SourceFile(uri, entry.name, file_format, entry.size, etag, etag=etag)
        return
    workers = os.cpu_count() or 1
    with DigestCache() as cache, ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future[SourceFile]] = deque()
        for target in everything:
            ahead.append(pool.submit(_pin, target, cache))
            if len(ahead) > 8 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _pin(target: Target, cache: DigestCache) -> SourceFile:
    uri, entry, file_format = target
    path = Path(uri, entry.name)
    try:
        with path.open("rb") as file:
            state = FileState.of(file)
            if state.size > _LARGE and not state.settled:
                time.sleep(_SETTLING_S)
            digest, state = cache.digest(str(path), file)
    except OSError as error:
        raise ConfigError("source.paths", f"{path} cannot be read ({error})", "fix the file or leave it out") from error
    # Until the file has settled, its time says nothing about later writes: readers compare the content.
    mtime_ns = state.mtime_ns if state.settled else 0
    return SourceFile(uri, entry.name, file_format, state.size, digest, mtime_ns=mtime_ns, inode=state.inode)


def _etag(uri: str, entry: Entry) -> str:
    if not entry.etag:
        raise ConfigError(
            "source.paths", f"the store gives no ETag for {uri}/{entry.name}", "copy the corpus to a store that does"
        )
    return entry.etag
