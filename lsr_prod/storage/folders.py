"""Folders that stages hand on, models and training sets, in a work store: there whole or not at all.

::

    <name>.json        manifest: path, sha256 and size of every file; written last, never replaced
    <name>/            in a local store: the folder itself, as it was put
    <name>/files/<sha256>      in an object store: every file under the name of its content

What lies in an object store is fetched into a cache of the user on this machine, once however many processes ask.
"""

import hashlib
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lsr_prod.errors import ArtifactError, DigestMismatchError, FormatVersionError, StorageError
from lsr_prod.formats.digest import FileDigest, canonical_json, digest_files, digest_json, verify_files
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.cache_folder import draft_of, locked, make_room
from lsr_prod.storage.download import fetch_file
from lsr_prod.storage.index_store import in_threads, object_name
from lsr_prod.storage.local import link_chunks, sync_folder
from lsr_prod.storage.remote import checked_chunks

__all__ = ["fetch_folder", "has_folder", "put_folder", "read_from_folder", "user_cache"]

log = logging.getLogger(__name__)

_FORMAT = 1
_CONNECTIONS = 4  # files that are sent or fetched at once; each needs about 50 MiB of memory


def user_cache() -> Path:
    """Where folders of object stores are kept on this machine: ``$XDG_CACHE_HOME`` or ``~/.cache``, ``lsr_prod``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lsr_prod" / "folders"


def has_folder(store: Store, name: str) -> bool:
    """Whether a folder was put, all of it."""
    return store.size(f"{name}.json") is not None


def put_folder(store: Store, name: str, folder: Path) -> None:
    """Copy a folder into a store; run again after a kill, it goes on. What is there already stays.

    Args:
        store: local or remote.
        name: path in the store; best one that stands for the content, for it cannot be given to other content.
        folder: every file below it is part of it; names that are links are followed.

    Raises:
        ArtifactError: the folder has no files, or the name is that of other content.
        DigestMismatchError: a file changed while it was read.
        StorageError: the store fails; what was sent stays, and nobody sees it.
    """
    files = digest_files(folder, (path for path in folder.rglob("*") if path.is_file()))
    if not files:
        raise ArtifactError(f"{folder} has no files; it cannot be kept as {name}")
    manifest = canonical_json({"format": _FORMAT, "files": [file.to_json() for file in files]}) + b"\n"
    start = time.perf_counter()
    if not has_folder(store, name):
        _send(store.child(name), files, folder)
        store.put_new(f"{name}.json", manifest)
    if store.get(f"{name}.json") != manifest:
        raise ArtifactError(f"{store.uri}/{name} holds something else than {folder}; delete it with its manifest")
    seconds = round(time.perf_counter() - start, 3)
    fields = {"name": name, "files": len(files), "bytes": sum(file.size for file in files), "seconds": seconds}
    log.info("folder put", extra={"fields": fields})


def fetch_folder(store: Store, name: str, *, verify: bool = True, cache: Path | None = None) -> Path:
    """A folder that was put, on this machine: to be read, never to be changed.

    Args:
        store: local or remote.
        name: as it was put.
        verify: compare every byte with its sha256 even where nothing has to be fetched, about a second for each GiB;
            False: sizes only. What is fetched is always compared.
        cache: folder for what comes from an object store; unset: ``user_cache()``. Nothing is ever removed from it.

    Returns:
        The folder of a local store itself; a copy of a remote one, whose files cannot be written.

    Raises:
        ArtifactError: it was not put, a file is missing, or its manifest is not to be trusted.
        DigestMismatchError: a file differs from its manifest.
        FormatVersionError: a newer release wrote it.
        StorageError: the store or the disk fails.
    """
    manifest = _read_manifest(store, name)
    files = _files(manifest, f"{store.uri}/{name}.json")
    if not is_remote(store.uri):
        place = Path(store.child(name).location)
        _check(place, files, verify, f"delete {place} and its manifest, then run again")
        return place
    cache = cache or user_cache()
    place = cache / "indexes" / "folders" / digest_json(manifest)
    fetched: tuple[FileDigest, ...] = ()
    try:
        if not place.is_dir():
            with locked(cache / "lock"):
                if not place.is_dir():  # another may have been quicker
                    fetched = _fetch(store.child(name), files, cache, place)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"the cache {cache} cannot be used ({error}); mend or free the disk") from error
    rest = [file for file in files if file not in fetched]
    _check(place, rest, verify, f"delete {cache}, which is a cache, then run again")
    return place


def read_from_folder(store: Store, name: str, path: str) -> bytes | None:
    """One small file of a folder that was put, not a copy of the rest; None: the folder has no such file.

    Raises:
        ArtifactError: the folder was not put, or the file is missing.
        DigestMismatchError: the file differs from its manifest.
    """
    files = {file.path: file for file in _files(_read_manifest(store, name), f"{store.uri}/{name}.json")}
    if path not in files:
        return None
    target = store.child(name)
    data = target.get(object_name(target, files[path]))
    if data is None:
        raise ArtifactError(f"{target.uri} lacks its {path}; delete it and its manifest, then run again")
    if hashlib.sha256(data).hexdigest() != files[path].sha256:
        raise DigestMismatchError(f"{path} of {target.uri} differs from its recorded sha256; delete it, then run again")
    return data


def _send(target: Store, files: tuple[FileDigest, ...], folder: Path) -> None:
    if not is_remote(target.uri):
        _copy(Path(target.location), files, folder)
        return

    def send(file: FileDigest) -> int:
        target.put_file_new(object_name(target, file), folder / file.path, file.sha256)
        size = target.size(object_name(target, file))
        if size != file.size:
            raise DigestMismatchError(
                f"{target.uri}/{object_name(target, file)} has {size} bytes, not the {file.size} of {file.path}; "
                "delete it, run again"
            )
        return file.size

    in_threads(send, {file.sha256: file for file in files}.values(), _CONNECTIONS)


def _copy(place: Path, files: tuple[FileDigest, ...], folder: Path) -> None:
    """A local copy, renamed when it is whole; a kill leaves a draft that nobody reads."""
    draft = place.parent / f".{place.name}.{uuid.uuid4().hex}.tmp"
    try:
        for file in files:
            link_chunks(draft / file.path, checked_chunks(folder / file.path, file.sha256, 1 << 20))
        _sync(draft)
        try:
            draft.rename(place)
        except OSError:
            if not place.is_dir():
                raise
            verify_files(place, files)  # another was quicker, or was killed before it wrote the manifest
        sync_folder(place.parent)
    except (ArtifactError, StorageError):
        raise
    except OSError as error:
        raise StorageError(f"{place} could not be written ({error}); mend the disk, then run again") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fetch(source: Store, files: tuple[FileDigest, ...], cache: Path, place: Path) -> tuple[FileDigest, ...]:
    """Add a folder to the cache, which is locked; returns the files that were fetched for it."""
    cache.chmod(0o700)  # what is found here is trusted later
    room = make_room(cache, {file.sha256: file for file in files}, None)
    start = time.perf_counter()

    def fetch(file: FileDigest) -> int:
        try:
            return fetch_file(source, file, cache / "files")
        except ArtifactError as error:
            named = f"{source.uri}/{object_name(source, file)}, {file.path} of the folder,"
            wrong = "is not what was put" if isinstance(error, DigestMismatchError) else "is missing"
            raise type(error)(f"{named} {wrong}; delete {source.uri} and {source.uri}.json, then run again") from error

    fetched = in_threads(fetch, room.missing, _CONNECTIONS)
    draft = draft_of(place)
    for file in files:
        target = draft / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(cache / "files" / file.sha256, target)
    _sync(draft)
    draft.rename(place)
    sync_folder(place.parent)
    seconds = round(time.perf_counter() - start, 3)
    log.info("folder fetched", extra={"fields": {"folder": source.uri, "bytes": fetched, "seconds": seconds}})
    return room.missing


def _read_manifest(store: Store, name: str) -> Any:
    data = store.get(f"{name}.json")
    if data is None:
        raise ArtifactError(f"{store.uri} has no {name}; run the stage that makes it again")
    try:
        return json.loads(data)
    except ValueError as error:
        raise ArtifactError(f"{store.uri}/{name}.json is damaged ({error}); delete it, then run again") from error


def _files(manifest: Any, where: str) -> tuple[FileDigest, ...]:
    try:
        if manifest["format"] != _FORMAT:
            raise FormatVersionError(f"{where} has format {manifest['format']}; this release reads {_FORMAT}")
        files = tuple(FileDigest.from_json(file) for file in manifest["files"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{where} is damaged ({type(error).__name__}: {error}); delete it, then run again"
        ) from error
    if not files or len({file.path for file in files}) != len(files):
        raise ArtifactError(f"{where} names no file, or one twice; it is not to be trusted")
    return files


def _check(place: Path, files: Iterable[FileDigest], verify: bool, remedy: str) -> None:
    try:
        if verify:
            verify_files(place, files)
            return
    except ArtifactError as error:
        raise type(error)(f"{error}; {remedy}") from error
    for file in files:
        path = place / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            raise ArtifactError(f"{path} is missing, or has not its {file.size} bytes; {remedy}")


def _sync(draft: Path) -> None:
    for folder in [*(path for path in draft.rglob("*") if path.is_dir()), draft]:
        sync_folder(folder)
