"""Local folders and globs of a source: links to folders are followed, and nothing that can hold data is left out.

Every folder is read once. A folder that is reached a second time through a link (a cycle, or ``latest`` next to the
folder that it means) is refused, because its documents would be there twice. Only sources follow links: garbage
collection and artifacts use ``Store.entries``, which does not.
"""

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, Store, is_remote

_DELTA_LOG = "_delta_log"


def source_error(problem: str, remedy: str) -> ConfigError:
    """Return the error for a file or folder that ``source.paths`` names."""
    return ConfigError("source.paths", problem, remedy)


def is_glob(path: str) -> bool:
    """Return whether a path has a wildcard."""
    return any(character in path for character in "*?[")


def is_marker(name: str) -> bool:
    """Return whether a name inside a folder is metadata; ``_key=value`` is a partition, not metadata."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))


def source_entries(store: Store) -> list[Entry]:
    """Return every object below a folder of a source, sorted by name; local folders of metadata are not entered.

    The Delta log is the exception: its objects are returned.
    """
    if is_remote(store.uri):
        return store.entries()
    root = Path(store.uri)
    found = []
    for folder in _folders(root):
        for child in _children(folder):
            path = Path(child.path)
            if is_marker(child.name) and folder.name != _DELTA_LOG:
                continue
            if _is_folder(child):
                continue
            if (entry := store.entry(path.relative_to(root).as_posix())) is not None:
                found.append(entry)
            else:
                require_no_dead_link(path)
    return sorted(found, key=lambda entry: entry.name)


def expand_glob(pattern: str) -> list[Path]:
    """Return the files and folders that an absolute glob matches, sorted as text; ``**`` is any number of folders.

    As in a shell, wildcards do not match names that begin with a dot, unless the pattern does.
    """
    parts = Path(pattern).parts
    fixed = next(number for number, part in enumerate(parts) if is_glob(part))
    return sorted(set(_expand(Path(*parts[:fixed]), parts[fixed:])), key=str)


def require_no_dead_link(path: Path) -> None:
    """Refuse a link whose target does not exist."""
    if path.is_symlink() and not path.exists():
        raise source_error(f"{path} is a link to {path.readlink()}, which does not exist", "fix or remove the link")


def _expand(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    if not parts:
        yield folder
        return
    head, rest = parts[0], parts[1:]
    if head == "**":
        for below in _folders(folder):
            yield from _expand(below, rest or ("*",))
    elif not is_glob(head):
        if os.path.lexists(folder / head):
            yield from _expand(folder / head, rest)
    else:
        for child in _children(folder):
            hidden = child.name.startswith(".") and not head.startswith(".")
            if not hidden and fnmatch.fnmatchcase(child.name, head):
                yield from _expand(Path(child.path), rest)


def _folders(root: Path) -> Iterator[Path]:
    """Yield a folder and all folders below it, links followed, without folders of metadata but the Delta log."""
    seen: dict[tuple[int, int], Path] = {}
    left = [root]
    while left:
        folder = left.pop()
        try:
            found = folder.stat()
        except (FileNotFoundError, NotADirectoryError):  # deleted in the meantime
            continue
        except OSError as error:
            raise _unreadable(folder, error) from error
        first = seen.setdefault((found.st_dev, found.st_ino), folder)
        if first != folder:
            raise _repeated(first, folder)
        yield folder
        children = (child for child in _children(folder) if not is_marker(child.name) or child.name == _DELTA_LOG)
        left += sorted((Path(child.path) for child in children if _is_folder(child)), reverse=True)


def _children(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except NotADirectoryError:
        return []
    except FileNotFoundError:
        require_no_dead_link(folder)
        return []
    except OSError as error:
        raise _unreadable(folder, error) from error


def _is_folder(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_dir()
    except OSError as error:  # a link to itself
        raise _unreadable(Path(child.path), error) from error


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return source_error(f"{path} cannot be listed ({error.strerror or error})", "fix or remove it")


def _repeated(first: Path, second: Path) -> ConfigError:
    if second.is_relative_to(first):
        link = next((part for part in (second, *second.parents) if part.is_symlink()), second)
        problem = f"{link} is a link to {first}, a folder that it is in"
    else:
        problem = f"{second} and {first} are the same folder, whose files would be read twice"
    return source_error(problem, "remove the link, or name the folders to read")
