"""Files and folders that appear whole or not at all: written under a draft name, synced, then linked or renamed.

A process that is killed leaves a draft. Readers ignore drafts (``is_draft``), garbage collection removes them.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from lsr_prod.errors import LsrError, StorageError
from lsr_prod.storage.disk import checked_chunks, disk_error, disk_failure, draft_name, is_draft, writing
from lsr_prod.storage.formats.digests import FileDigest


class Draft:
    """A folder under a private name in the same parent as its target; a context manager.

    The draft is removed at the end of the block unless it was sealed.
    """

    def __init__(self, target: Path) -> None:
        """Choose the names; the folder is created when the block begins."""
        self.target = target.absolute()
        self.folder = self.target.with_name(draft_name(self.target.name))

    def __enter__(self) -> Self:
        """Create the draft folder, and its parent if it is missing."""
        with writing(self.target):
            _make_folder(self.target.parent)
            self.folder.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what was not sealed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if not isinstance(error, LsrError):
            failure = disk_error(error, self.target)
            if failure is not None:
                raise failure from error

    def seal(self) -> bool:
        """Flush the draft to the disk and rename it to its target, which may be an empty folder.

        Returns:
            True if the target is this draft; False if a folder with content has that name already.
        """
        sync_tree(self.folder)
        try:
            self.folder.rename(self.target)
        except OSError:
            if not self.target.is_dir() or not any(self.target.iterdir()):
                raise
            return False
        sync_folder(self.target.parent)
        return True


@contextmanager
def new_file(path: Path, *, replace: bool = False) -> Iterator[IO[bytes]]:
    """Open a draft file that gets its name when the block ends without an error."""
    draft = path.with_name(draft_name(path.name))
    try:
        _make_folder(path.parent)
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)  # unlike a rename, never replaces
        try:
            sync_folder(path.parent)
        except OSError:
            if not replace:  # the next attempt would find the name taken
                path.unlink()
            raise
    except StorageError:
        raise
    except FileExistsError as error:
        raise StorageError(f"{path} exists already; give a new path, or delete it") from error
    except OSError as error:
        raise disk_failure(error, path) from error
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            draft.unlink()


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; a file of that name is replaced."""
    with new_file(path, replace=True) as file:
        file.write(data)


def append_file(path: Path) -> IO[str]:
    """Open a UTF-8 log to append lines; its folder is created if it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise disk_failure(error, path) from error


def create_file(target: Path, chunks: Iterable[bytes]) -> bool:
    """Write a file durably unless its name is taken; if ``chunks`` raises, nothing is written.

    Returns:
        True if this call created the file; False if the name is taken.
    """
    if target.exists():
        return False
    draft = target.with_name(draft_name(target.name))
    with writing(target):
        _make_folder(target.parent)
        try:
            with draft.open("xb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            # link, unlike rename, never replaces: a finished object is never overwritten and never seen half written.
            os.link(draft, target)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(target.parent)
    return True


@contextmanager
def sentinel(folder: Path) -> Iterator[Path]:
    """Create an empty draft in a folder, and remove it at the end of the block with the folders made for it."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    path = folder / draft_name("sentinel")
    try:
        try:
            create_file(path, ())
        except OSError as error:
            raise disk_failure(error, folder) from error
        yield path
    finally:
        with suppress(OSError):  # it could not be created, or another process uses a folder
            path.unlink(missing_ok=True)
            for made in missing:
                made.rmdir()


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name, in place of the file that has it: readers find one or the other, whole."""
    draft = target.with_name(draft_name(target.name))
    with writing(target):
        _make_folder(target.parent)
        try:
            os.link(source, draft)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(target.parent)


def copy_files(source: Path, target: Path, files: Iterable[FileDigest]) -> None:
    """Copy files of a folder into a draft folder, comparing each with its sha256."""
    for file in files:
        create_file(target / file.path, checked_chunks(source / file.path, file.sha256, 1 << 20))


def copy_tree(source: Path, target: Path) -> None:
    """Copy every file below ``source`` into a draft folder; symbolic links are followed.

    Folders have the modes of new folders: that of a read-only folder could neither be completed nor removed.
    """
    for folder, _, names in os.walk(source, followlinks=True, onerror=_raise):
        place = target / Path(folder).relative_to(source)
        place.mkdir(exist_ok=True)
        for name in names:
            shutil.copyfile(f"{folder}/{name}", place / name)


def _raise(error: OSError) -> None:
    raise error


def remove(path: Path, *, unless: Callable[[Path], bool] | None = None) -> int:
    """Delete a file or a folder and return its bytes; a folder becomes a draft first: no reader finds half of it."""
    if not path.is_dir():
        size = path.stat().st_size
        path.unlink()
        return size
    draft = path
    if not is_draft(path.name):
        draft = path.with_name(draft_name(path.name))
        path.rename(draft)
        if unless is not None and unless(draft):
            draft.rename(path)
            return 0
    size = sum(file.stat().st_size for file in draft.rglob("*") if file.is_file())
    shutil.rmtree(draft, ignore_errors=True)
    return size


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below ``folder``, and the folder itself, to the disk."""
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    _sync(folder)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents, each durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)  # another thread or process may create it now
    except FileExistsError as error:
        raise StorageError(f"{folder} is a file, not a folder; give a new path, or delete it") from error
    sync_folder(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
