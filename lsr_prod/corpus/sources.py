"""The corpus, pinned: paths, globs, BEIR folders, saved datasets and Delta versions become pinned files."""

import logging
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.delta_source import delta_files
from lsr_prod.corpus.listing import find_files, is_glob
from lsr_prod.corpus.saved_dataset import dataset_files, is_saved_dataset
from lsr_prod.corpus.source_file import ENDINGS, Cut, FileFormat, SourceFile, cut_of, format_of
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, Store, is_remote, store_digest

__all__ = ["Cut", "FileFormat", "SourceFile", "cut_of", "resolve_source"]

log = logging.getLogger(__name__)

_BEIR = ("corpus.jsonl", "corpus.jsonl.gz", "corpus.jsonl.zst")
_Target = tuple[str, Entry, FileFormat]


def resolve_source(
    settings: SourceSettings, options: dict[str, str], *, collections: bool = True
) -> Iterator[SourceFile]:
    """List the files of the corpus in their order: paths as given, names sorted inside a folder or glob.

    Lazy: a file is hashed shortly before it is yielded, and errors come while iterating.

    Args:
        settings: the section ``source``.
        options: options of the object store.
        collections: ``auto`` tells BEIR folders and saved datasets; False: a folder is the files that it has.

    Yields:
        Every file once, with its size and tag.

    Raises:
        ConfigError: a path points nowhere, or its format cannot be told or read.
    """
    seen: set[str] = set()
    several = len(settings.paths) > 1
    for path in settings.paths:
        for file in _resolve(path, settings, options, collections):
            if several or is_glob(path):  # one folder names a file once: no need to remember a million
                if file.location in seen:
                    continue
                seen.add(file.location)
            yield file


def _resolve(path: str, settings: SourceSettings, options: dict[str, str], collections: bool) -> Iterator[SourceFile]:
    if not is_remote(path):
        path = str(Path(path).absolute())
    try:
        if settings.format == "delta" or (settings.format == "auto" and _has_delta_log(path, options)):
            yield from delta_files(path, settings, options)
            return
        if settings.version is not None:
            raise ConfigError("source.version", f"{path} is no Delta table", "leave the field unset")
        yield from _pinned(_targets(path, settings, options, collections), options)
    except FileNotFoundError as error:
        raise ConfigError("source.paths", f"{error.filename or path} went while it was listed", "run again") from error


def _targets(path: str, settings: SourceSettings, options: dict[str, str], collections: bool) -> Iterator[_Target]:
    wanted, store = settings.format, Store(path, options)
    folder_like = collections and (not is_remote(path) or not (format_of(path, "auto") or is_glob(path)))
    if wanted in ("auto", "beir") and folder_like:
        corpus = next((entry for name in _BEIR if (entry := store.entry(name))), None)
        if corpus is not None:
            yield path, corpus, format_of(corpus.name, "jsonl") or "jsonl"
            return
    if wanted == "beir":
        raise ConfigError("source.paths", f"{path} has no corpus.jsonl", "give a BEIR folder")
    if wanted == "datasets" or (wanted == "auto" and folder_like and is_saved_dataset(store)):
        if not is_saved_dataset(store):
            raise ConfigError("source.paths", f"{path} has no state.json", "give a folder that save_to_disk made")
        yield from ((path, entry, "arrow") for entry in dataset_files(store))
        return
    yield from _of_known_format(path, wanted, find_files(path, options))


def _of_known_format(path: str, wanted: str, found: Iterator[tuple[str, Entry]]) -> Iterator[_Target]:
    known, unknown, example = 0, 0, ""
    for uri, entry in found:
        if (file_format := format_of(entry.name, wanted)) is not None:
            known += 1
            yield uri, entry, file_format
        else:
            unknown, example = unknown + 1, f"{uri}/{entry.name}"
    if not known and not unknown:
        raise ConfigError("source.paths", f"there is nothing at {path}", "give files, folders or globs that exist")
    if not known:
        raise ConfigError(
            "source.format", f"the format of {path} cannot be told", f"use an ending of {', '.join(ENDINGS)}"
        )
    if unknown:
        fields = {"path": path, "files": unknown, "example": example}
        log.warning("files without an ending that we know are left out", extra={"fields": fields})


def _has_delta_log(path: str, options: dict[str, str]) -> bool:
    if is_remote(path):
        return not is_glob(path) and bool(Store(path, options).names("_delta_log"))
    return (Path(path) / "_delta_log").is_dir()


def _pinned(targets: Iterator[_Target], options: dict[str, str]) -> Iterator[SourceFile]:
    """Hash local files on all cores, a few ahead of whoever reads; objects have their tag from the listing."""
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
        ahead: deque[tuple[_Target, Future[str]]] = deque()
        for target in everything:
            ahead.append((target, pool.submit(store_digest, Store(target[0], options), target[1].name)))
            if len(ahead) > 8 * workers:
                yield _hashed(*ahead.popleft())
        while ahead:
            yield _hashed(*ahead.popleft())


def _hashed(target: _Target, digest: Future[str]) -> SourceFile:
    uri, entry, file_format = target
    try:
        return SourceFile(uri, entry.name, file_format, entry.size, digest.result())
    except OSError as error:
        raise ConfigError(
            "source.paths", f"{uri}/{entry.name} cannot be read ({error})", "mend or leave it out"
        ) from error


def _etag(uri: str, entry: Entry) -> str:
    if not entry.etag:
        raise ConfigError(
            "source.paths", f"the store gives no ETag for {uri}/{entry.name}", "copy the corpus to a store that does"
        )
    return entry.etag
