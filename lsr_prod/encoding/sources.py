"""The corpus, pinned: paths, globs, BEIR folders and Delta versions become pinned files."""

import fnmatch
import glob
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from lsr_prod.config import SourceSettings
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store, is_remote, store_digest

__all__ = ["FileFormat", "SourceFile", "resolve_source"]

FileFormat = Literal["parquet", "jsonl", "jsonl.gz"]
_ENDINGS: Mapping[str, FileFormat] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "jsonl.gz",
    ".ndjson.gz": "jsonl.gz",
}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One pinned file of the corpus.

    Attributes:
        uri: its folder.
        name: its path inside the folder.
        format: how to read it.
        size: bytes.
        tag: sha256 of a local file, ETag of an object, or the entry of a Delta log: what changes when the file does.
        constants: values that every row has, from the partition of a Delta source.
    """

    uri: str
    name: str
    format: FileFormat
    size: int
    tag: str
    constants: tuple[tuple[str, str | None], ...] = ()

    @property
    def location(self) -> str:
        """Path or URI, for people."""
        return f"{self.uri.rstrip('/')}/{self.name}"

    def identity(self) -> dict[str, Any]:
        """What names the content, whatever folder it lies in: a corpus that moved is still the same corpus."""
        constants = dict(self.constants)
        name = self.name.rpartition("/")[2]
        return {"name": name, "format": self.format, "size": self.size, "tag": self.tag, "constants": constants}


def resolve_source(settings: SourceSettings, options: dict[str, str]) -> tuple[SourceFile, ...]:
    """List the files of the corpus in their order: paths as given, names sorted inside a folder or glob.

    Args:
        settings: the section ``source``.
        options: options of the object store.

    Returns:
        Every file once, with its size and tag.

    Raises:
        ConfigError: a path points nowhere, or its format cannot be told or read.
    """
    found: dict[str, SourceFile] = {}
    for path in settings.paths:
        for file in _resolve(path, settings, options):
            found.setdefault(file.location, file)
    return tuple(found.values())


def _resolve(path: str, settings: SourceSettings, options: dict[str, str]) -> Iterator[SourceFile]:
    if not is_remote(path):
        path = str(Path(path).absolute())
    is_delta = settings.format == "delta" or (settings.format == "auto" and _has_delta_log(path, options))
    if is_delta:
        yield from _delta_files(path, settings, options)
        return
    if settings.version is not None:
        raise ConfigError("source.version", f"{path} is no Delta table", "leave the field unset")
    names = _beir_names(path, options) if settings.format in ("auto", "beir") else []
    if settings.format == "beir" and not names:
        raise ConfigError("source.paths", f"{path} has no corpus.jsonl", "give a BEIR folder")
    targets = [(path, name) for name in names] or _matches(path, options)
    if not targets:
        raise ConfigError("source.paths", f"there is nothing at {path}", "give files, folders or globs that exist")
    known = [(uri, name, file_format) for uri, name in targets if (file_format := _format_of(name, settings.format))]
    if not known:
        raise ConfigError(
            "source.format", f"the format of {path} cannot be told", f"use an ending of {', '.join(_ENDINGS)}"
        )
    for uri, name, file_format in known:
        yield _pin(Store(uri, options), name, file_format)


def _has_delta_log(path: str, options: dict[str, str]) -> bool:
    if is_remote(path):
        return not _format_of(path, "auto") and "*" not in path and bool(Store(path, options).names("_delta_log"))
    return (Path(path) / "_delta_log").is_dir()


def _beir_names(path: str, options: dict[str, str]) -> list[str]:
    if is_remote(path) and (_format_of(path, "auto") or "*" in path):
        return []
    store = Store(path, options)
    return [name for name in ("corpus.jsonl", "corpus.jsonl.gz") if store.size(name) is not None][:1]


def _matches(path: str, options: dict[str, str]) -> list[tuple[str, str]]:
    """(folder, name) of every file that a path, folder or glob means, sorted."""
    if is_remote(path):
        folder, _, pattern = path.rpartition("/")
        if "*" in path:
            folder = path[: path.index("*")].rpartition("/")[0]
            pattern = path[len(folder) + 1 :]
            return [(folder, name) for name in Store(folder, options).names() if fnmatch.fnmatch(name, pattern)]
        if Store(folder, options).size(pattern) is not None:
            return [(folder, pattern)]
        return [(path, name) for name in Store(path, options).names()]
    if Path(path).is_file():
        return [(str(Path(path).parent), Path(path).name)]
    if Path(path).is_dir():
        return [(path, name) for name in Store(path).names()]
    matches = [Path(match) for match in sorted(glob.glob(path, recursive=True))]  # noqa: PTH207 (absolute patterns)
    found = []
    for match in matches:
        if match.is_file():
            found.append((str(match.parent), match.name))
        elif (match / "_delta_log").is_dir():  # its folder holds removed rows too
            raise ConfigError("source.paths", f"{path} matches the Delta table {match}", "name a Delta table itself")
        elif _format_of(match.name, "auto"):  # many writers make a folder of parts where one would expect a file
            found += [(str(match), name) for name in Store(str(match)).names()]
    return found


def _format_of(name: str, wanted: str) -> FileFormat | None:
    if wanted == "parquet":
        return "parquet"
    if wanted == "jsonl":
        return "jsonl.gz" if name.endswith(".gz") else "jsonl"
    return next((found for ending, found in _ENDINGS.items() if name.lower().endswith(ending)), None)


def _pin(store: Store, name: str, file_format: FileFormat) -> SourceFile:
    size = store.size(name)
    if size is None:
        raise ConfigError("source.paths", f"{store.uri}/{name} vanished while it was listed", "run again")
    tag = store.etag(name) if is_remote(store.uri) else store_digest(store, name)
    return SourceFile(store.uri, name, file_format, size, tag)


def _delta_files(path: str, settings: SourceSettings, options: dict[str, str]) -> Iterator[SourceFile]:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    store = Store(path, options)
    try:
        table = DeltaTable(store.location, version=settings.version, storage_options=store.delta_options)
    except (DeltaError, OSError) as error:
        raise ConfigError(
            "source.paths", f"{path} does not open as a Delta table ({error})", "give a table, and a version it has"
        ) from error
    unread = set(table.protocol().reader_features or ()) - {"timestampNtz", "vacuumProtocolCheck"}
    if unread:
        raise ConfigError(
            "source.paths", f"{path} uses Delta features {sorted(unread)}", "rewrite it without them, e.g. as Parquet"
        )
    partitions = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for action in sorted(actions, key=lambda action: str(action["path"])):
        constants = tuple((name, _as_text(action[f"partition.{name}"])) for name in partitions)
        tag = f"delta:{action['path']}:{action['modification_time']}"
        name = unquote(str(action["path"]))  # the log holds URIs: a partition's special characters are escaped
        yield SourceFile(store.location, name, "parquet", int(action["size_bytes"]), tag, constants)


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)
