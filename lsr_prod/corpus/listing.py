"""Files of a path, folder or glob, with their sizes, from one listing per folder."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from lsr_prod import errors, logs
from lsr_prod.config import SourceSettings
from lsr_prod.corpus.folders import expand_glob, is_glob, is_marker, require_no_dead_link, source_entries, source_error
from lsr_prod.corpus.formats import interface, registry
from lsr_prod.corpus.pinned_file import SourceFile, Target, pin_files
from lsr_prod.storage import Entry, Store, is_remote

log = logs.get_log(__name__)

# JSON that programs write next to files of another format, about them.
_DESCRIPTION = re.compile(
    r"(?:^|/)(dataset_(infos?|dict)|state|datapackage|manifest|schema|([^/]*\.)?metadata)\.json\Z"
)
_IN_DELTA_LOG = re.compile(r"(|.*?/)_delta_log/", re.DOTALL)


def find_files(path: str, options: dict[str, str]) -> Iterator[tuple[str, Entry]]:
    """Yield (folder, entry) of every file of a path, folder or glob, sorted by name.

    A file that is named itself is always read. In folders and globs, names that start with ``_`` or ``.`` are markers
    and metadata of the program that wrote the folder (``_SUCCESS``, ``_metadata``, ``.part.crc``) and are skipped.
    """
    if is_remote(path):
        yield from _find_remote(path, options)
        return
    if Path(path).is_dir():
        yield from _folder(path, {})
    elif (entry := Store(str(Path(path).parent)).entry(Path(path).name)) is not None:
        yield str(Path(path).parent), entry
    elif is_glob(path):
        tables: dict[Path, Path | None] = {}
        for match in expand_glob(path):
            yield from _match(path, match, tables)
    else:
        require_no_dead_link(Path(path))


def _folder(uri: str, options: dict[str, str], pattern: re.Pattern[str] | None = None) -> Iterator[tuple[str, Entry]]:
    entries = source_entries(Store(uri, options))
    tables = {found[1] for entry in entries if (found := _IN_DELTA_LOG.match(entry.name))}
    for entry in entries:
        if is_marker(entry.name) or (pattern is not None and not pattern.fullmatch(entry.name)):
            continue
        if table := next((table for table in tables if entry.name.startswith(table)), None):
            raise _loose_delta(uri, f"{uri}/{table.rstrip('/')}")
        yield uri, entry


def _find_remote(path: str, options: dict[str, str]) -> Iterator[tuple[str, Entry]]:
    folder, _, name = path.rstrip("/").rpartition("/")
    # An object's name may contain a wildcard character: an object with exactly this name has priority.
    entry = Store(folder, options).entry(name) if folder.rpartition("/")[2] else None
    if entry is not None:
        yield folder, entry
    elif is_glob(path):
        fixed = re.split(r"[*?\[]", path, maxsplit=1)[0].rpartition("/")[0]
        yield from _folder(fixed, options, _expression(path[len(fixed) + 1 :]))
    else:
        yield from _folder(path, options)


def _match(pattern: str, match: Path, tables: dict[Path, Path | None]) -> Iterator[tuple[str, Entry]]:
    fixed = Path(re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0] or "/")  # before the first wildcard
    if is_marker(match.relative_to(fixed).as_posix()):  # also of a folder of metadata that ``**`` matched
        return
    if table := _delta_table(match if match.is_dir() else match.parent, fixed, tables):
        raise _loose_delta(pattern, str(table))
    if match.is_dir():
        # Many programs write a folder of parts under the name of a file.
        if registry.find_format(match.name, "auto"):
            yield from _folder(str(match), {})
    elif (entry := Store(str(match.parent)).entry(match.name)) is not None:
        yield str(match.parent), entry
    else:
        require_no_dead_link(match)


def _delta_table(folder: Path, top: Path, known: dict[Path, Path | None]) -> Path | None:
    """Return the Delta table that a folder is or is in, up to ``top``."""
    if folder not in known:
        if (folder / "_delta_log").is_dir():
            known[folder] = folder
        else:
            known[folder] = None if folder == top else _delta_table(folder.parent, top, known)
    return known[folder]


def _loose_delta(path: str, table: str) -> errors.ConfigError:
    return source_error(f"{path} matches the Delta table {table}", "name a Delta table itself")


def _expression(pattern: str) -> re.Pattern[str]:
    """Translate a glob: ``*`` and ``?`` match inside a folder, ``**/`` matches any number of folders."""
    tokens = re.split(r"(\*\*/|\*\*|\*|\?|\[!?[^]]+\])", pattern)
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

    def translate(token: str) -> str:
        if token in special:
            return special[token]
        if len(token) > 2 and token.startswith("[") and token.endswith("]"):
            inside = token[1:-1].replace("\\", r"\\")
            return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
        return re.escape(token)

    return re.compile("".join(translate(token) for token in tokens), re.DOTALL)


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
        # Without "..", a file that several paths name has one location.
        path = str(Path(path).resolve() if ".." in Path(path).parts else Path(path).absolute())
    try:
        folder = _folder_format(path, settings, options, documents)
        if folder is not None:
            _check_version(path, settings, versioned=folder.versioned)
            yield from folder.files(path, settings, options)
            return
        _check_version(path, settings, versioned=False)
        yield from pin_files(_known_files(path, settings.format, find_files(path, options)))
    except OSError as error:
        if isinstance(error, errors.LsrError):
            raise
        place, missing = error.filename or path, isinstance(error, FileNotFoundError)
        problem = "was deleted while it was listed" if missing else f"cannot be read ({error.strerror or error})"
        remedy = "run the job again" if missing else "give paths that this user can read"
        raise source_error(f"{place} {problem}", remedy) from error


def source_schema(settings: SourceSettings, options: dict[str, str]) -> pa.Schema | None:
    """Return the columns of the table that the first path of a source is; None: it is no table."""
    path = settings.paths[0] if is_remote(settings.paths[0]) else str(Path(settings.paths[0]).absolute())
    folder = _folder_format(path, settings, options, documents=True)
    return None if folder is None or folder.schema is None else folder.schema(path, settings, options)


def _folder_format(
    path: str, settings: SourceSettings, options: dict[str, str], documents: bool
) -> interface.FolderFormat | None:
    for folder in registry.FOLDER_FORMATS:
        expected = documents or not folder.documents
        recognized = settings.format == "auto" and expected and _may_be_folder(path, folder.documents)
        if settings.format == folder.name or (recognized and folder.recognizes(path, options)):
            return folder
    return None


def _check_version(path: str, settings: SourceSettings, *, versioned: bool) -> None:
    if settings.version is not None and not versioned:
        raise errors.ConfigError("source.version", f"{path} is not a Delta table", "leave the field unset")


def _may_be_folder(path: str, documents: bool) -> bool:
    """Return whether a path is worth a look: not a file or glob of an object store, where a look is a request."""
    return not is_remote(path) or not (is_glob(path) or (documents and registry.find_format(path, "auto") is not None))


def _known_files(path: str, wanted: str, found: Iterator[tuple[str, Entry]]) -> Iterator[Target]:
    targets, skipped = list[Target](), list[str]()
    for uri, entry in found:
        if (refused := registry.refusal(entry.name)) is not None:
            raise source_error(f"{uri}/{entry.name} {refused[0]}", refused[1])
        file_format = registry.find_format(entry.name, wanted)
        if file_format is not None:
            targets.append((uri, entry, file_format))
        else:
            skipped.append(f"{uri}/{entry.name}")
    if not targets and not skipped:
        raise source_error(f"there is nothing at {path}", "give files, folders or globs that exist")
    if not targets:
        problem = f"the format of {path} is unknown"
        raise errors.ConfigError("source.format", problem, f"use a file name that ends in {registry.ENDINGS}")
    others = any(file_format.partition(".")[0] != "json" for *_, file_format in targets)
    for uri, entry, file_format in targets:
        if others and wanted == "auto" and not is_glob(path) and _DESCRIPTION.search(entry.name):
            skipped.append(f"{uri}/{entry.name}")
        else:
            yield uri, entry, file_format
    if skipped:
        fields = {"path": path, "files": len(skipped), "example": skipped[0]}
        log.warning("files of unknown format, or that describe the others, are skipped", extra={"fields": fields})
