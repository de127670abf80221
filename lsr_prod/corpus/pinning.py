"""Pin files by the digest of their content: a file that changes gets another tag."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, Store, is_remote, store_digest

__all__ = ["Target", "pin_files"]

Target = tuple[str, Entry, str]
"""Folder, entry and format of a file."""


def pin_files(targets: Iterator[Target], options: dict[str, str]) -> Iterator[SourceFile]:
    """Yield pinned files: local files are hashed on all cores, a few ahead; objects have an ETag in the listing.

    Raises:
        ConfigError: a file cannot be read, or the store gives no ETag.
    """
    first = next(targets, None)
    if first is None:
        return
    everything = chain([first], targets)
    if is_remote(first[0]):
        for uri, entry, file_format in everything:
            yield SourceFile(uri, entry.name, file_format, entry.size, _etag(uri, entry))
        return
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[tuple[Target, Future[str]]] = deque()
        for target in everything:
            ahead.append((target, pool.submit(store_digest, Store(target[0], options), target[1].name)))
            if len(ahead) > 8 * workers:
                yield _hashed(*ahead.popleft())
        while ahead:
            yield _hashed(*ahead.popleft())


def _hashed(target: Target, digest: Future[str]) -> SourceFile:
    uri, entry, file_format = target
    try:
        return SourceFile(uri, entry.name, file_format, entry.size, digest.result())
    except OSError as error:
        raise ConfigError(
            "source.paths", f"{uri}/{entry.name} cannot be read ({error})", "fix the file or leave it out"
        ) from error


def _etag(uri: str, entry: Entry) -> str:
    if not entry.etag:
        raise ConfigError(
            "source.paths", f"the store gives no ETag for {uri}/{entry.name}", "copy the corpus to a store that does"
        )
    return entry.etag
