"""Files of a path, folder or glob, with their sizes, from one listing per folder."""

import glob
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from lsr_prod.corpus.formats.registry import find_format
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, Store, is_remote

__all__ = ["find_files", "is_glob", "is_marker"]


def find_files(path: str, options: dict[str, str]) -> Iterator[tuple[str, Entry]]:
    """Yield (folder, entry) of every file of a path, folder or glob, sorted by name.

    A file that is named itself is always read. In folders and globs, names that start with ``_`` or ``.`` are markers
    and metadata of the program that wrote the folder (``_SUCCESS``, ``_metadata``, ``.part.crc``) and are skipped.

    Raises:
        ConfigError: a glob matches a Delta table, whose folder also has files with removed rows.
    """
    if is_remote(path):
        yield from _find_remote(path, options)
        return
    if (entry := Store(str(Path(path).parent)).entry(Path(path).name)) is not None:
        yield str(Path(path).parent), entry
    elif Path(path).is_dir():
        yield from _folder(path, {})
    elif is_glob(path):
        for match in sorted(glob.glob(path, recursive=True)):  # noqa: PTH207 (absolute patterns)
            yield from _match(path, Path(match))


def is_glob(path: str) -> bool:
    """Return whether a path has a wildcard."""
    return any(character in path for character in "*?[")


def is_marker(name: str) -> bool:
    """Return whether a name inside a folder is metadata; ``_key=value`` is a partition, not metadata."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))


def _folder(uri: str, options: dict[str, str], pattern: re.Pattern[str] | None = None) -> Iterator[tuple[str, Entry]]:
    entries = Store(uri, options).entries()
    tables = {entry.name.partition("_delta_log/")[0] for entry in entries if "_delta_log/" in entry.name}
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


def _match(pattern: str, match: Path) -> Iterator[tuple[str, Entry]]:
    if is_marker(match.name):
        return
    if (match / "_delta_log").is_dir():
        raise _loose_delta(pattern, str(match))
    if match.is_dir():
        # Many programs write a folder of parts under the name of a file.
        if find_format(match.name, "auto"):
            yield from _folder(str(match), {})
    elif (entry := Store(str(match.parent)).entry(match.name)) is not None and not _below_marker(pattern, match):
        yield str(match.parent), entry


def _loose_delta(path: str, table: str) -> ConfigError:
    return ConfigError("source.paths", f"{path} matches the Delta table {table}", "name a Delta table itself")


def _below_marker(pattern: str, match: Path) -> bool:
    """Return whether ``**`` matched a folder of metadata."""
    fixed = PurePosixPath(re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0] or "/")
    return is_marker(match.relative_to(fixed).as_posix())


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
