"""Files of a source: paths, globs and folders become pinned files, whatever the format."""

from collections.abc import Iterator
from pathlib import Path

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.folders import is_glob
from lsr_prod.corpus.formats.registry import FOLDER_FORMATS, SUFFIXES, find_format
from lsr_prod.corpus.listing import find_files
from lsr_prod.corpus.pinning import Target, pin_files
from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log
from lsr_prod.storage import Entry, is_remote

log = get_log(__name__)


def resolve_source(
    settings: SourceSettings, options: dict[str, str], *, documents: bool = True
) -> Iterator[SourceFile]:
    """List the files of a source in order: paths as given, names sorted inside a folder or glob.

    Lazy: a file is hashed shortly before it is yielded, and errors are raised while iterating.

    Yields:
        Every file once, with its size and tag.
    """
    seen: set[str] = set()
    several = len(settings.paths) > 1
    for path in settings.paths:
        for file in _resolve(path, settings, options, documents):
            if several or is_glob(path):  # one folder names a file once: no need to remember a million
                if file.location in seen:
                    continue
                seen.add(file.location)
            yield file


def _resolve(path: str, settings: SourceSettings, options: dict[str, str], documents: bool) -> Iterator[SourceFile]:
    if not is_remote(path):
        path = str(Path(path).absolute())
    try:
        for folder in FOLDER_FORMATS:
            expected = documents or not folder.documents
            recognized = settings.format == "auto" and expected and _may_be_folder(path, folder.documents)
            if settings.format == folder.name or (recognized and folder.recognizes(path, options)):
                _check_version(path, settings, versioned=folder.versioned)
                yield from folder.files(path, settings, options)
                return
        _check_version(path, settings, versioned=False)
        yield from pin_files(_known_files(path, settings.format, find_files(path, options)))
    except FileNotFoundError as error:
        raise ConfigError(
            "source.paths", f"{error.filename or path} was deleted while it was listed", "run the job again"
        ) from error


def _check_version(path: str, settings: SourceSettings, *, versioned: bool) -> None:
    if settings.version is not None and not versioned:
        raise ConfigError("source.version", f"{path} is not a Delta table", "leave the field unset")


def _may_be_folder(path: str, documents: bool) -> bool:
    """Return whether a path is worth a look: not a file or glob of an object store, where a look is a request."""
    return not is_remote(path) or not (is_glob(path) or (documents and find_format(path, "auto") is not None))


def _known_files(path: str, wanted: str, found: Iterator[tuple[str, Entry]]) -> Iterator[Target]:
    known, unknown, example = 0, 0, ""
    for uri, entry in found:
        if (file_format := find_format(entry.name, wanted)) is not None:
            known += 1
            yield uri, entry, file_format
        else:
            unknown, example = unknown + 1, f"{uri}/{entry.name}"
    if not known and not unknown:
        raise ConfigError("source.paths", f"there is nothing at {path}", "give files, folders or globs that exist")
    if not known:
        raise ConfigError(
            "source.format", f"the format of {path} is unknown", f"use a file name that ends in {', '.join(SUFFIXES)}"
        )
    if unknown:
        fields = {"path": path, "files": unknown, "example": example}
        log.warning("files with an unknown ending are skipped", extra={"fields": fields})
