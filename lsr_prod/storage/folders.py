"""Inputs and outputs of jobs by path or URI: folders of artifacts, bundles, and text files.

A folder in an object store, ``s3://bucket/models/x``, is the artifact ``x`` of the store ``s3://bucket/models`` (see
``artifacts``); it is fetched into the node cache of the user. A local folder is used where it is.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from lsr_prod.errors import ArtifactError, ConfigError, StorageError
from lsr_prod.storage import artifacts, location, stores
from lsr_prod.storage.formats import bundle_format, digests

Options = Mapping[str, str] | None


def absolute(place: str) -> str:
    """Return a URI as it is, and a path as an absolute path: the processes of a job have other working directories."""
    return place if location.is_remote(place) else str(Path(place).absolute())


def file_exists(place: str, options: Options = None) -> bool:
    """Return whether there is a file at a path or URI."""
    if location.is_remote(place):
        folder, _, name = place.rpartition("/")
        return bool(name) and stores.Store(folder, dict(options or {})).entry(name) is not None
    return Path(place).is_file()


def digest_file(place: str, options: Options = None) -> str:
    """Return the sha256 (hex) of a file by path or URI, which is read in pieces."""
    with open_binary(place, options) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # as in digest_cache


def folder_exists(place: str, options: Options = None) -> bool:
    """Return whether an artifact was put at a URI, or a local folder has content."""
    if location.is_remote(place):
        return artifacts.has_artifact(*_split(place, options))
    folder = Path(place)
    return folder.is_dir() and any(folder.iterdir())


def refuse_file(field: str, place: str, remedy: str = "name a folder") -> None:
    """Refuse an output folder that is a local file."""
    if not location.is_remote(place) and Path(place).exists() and not Path(place).is_dir():
        raise ConfigError(field, f"{place} is a file", remedy)


def output_exists(field: str, output: str, options: Options = None) -> bool:
    """Return whether the output of a job exists, with any content."""
    remedy = "name a folder that does not exist"
    refuse_file(field, output, remedy)
    try:
        return folder_exists(output, options)
    except ArtifactError as error:
        raise ConfigError(field, str(error), remedy) from error


def open_folder(place: str, options: Options = None, *, verify: bool = True) -> Path:
    """Return a folder that must not be changed: a local one itself, absolute; the verified copy of a remote one."""
    if not location.is_remote(place):
        return Path(place).absolute()
    store, name = _split(place, options)
    return artifacts.fetch_artifact(store, name, verify=verify)


def open_source(place: str, options: Options = None) -> str:
    """Return the copy of a remote folder as ``open_folder`` does; a path or a Hugging Face id is returned unchanged."""
    return str(open_folder(place, options)) if location.is_remote(place) else place


def open_bundle(place: str, options: Options = None) -> tuple[Path, bundle_format.Bundle]:
    """Return the folder of a bundle, every file verified, and its manifest."""
    folder = open_folder(place, options, verify=False)
    try:
        return folder, bundle_format.Bundle.load(folder, verify=True)
    except ArtifactError:
        if not location.is_remote(place):
            raise
    folder = open_folder(place, options)  # replaces damaged files in the cache
    return folder, bundle_format.Bundle.load(folder, verify=True)


def bundle_manifest(place: str, options: Options = None) -> bundle_format.Bundle:
    """Return the manifest of a bundle; nothing else of a remote one is fetched, and no file is verified."""
    if not location.is_remote(place):
        return bundle_format.Bundle.load(Path(place).absolute())
    data = artifacts.read_artifact_file(*_split(place, options), bundle_format.BUNDLE_FILE)
    with digests.parsing(f"{place} is no bundle", "give the URI that lsr-prod export wrote"):
        return bundle_format.Bundle.from_json(json.loads(data or b""))


def store_file(place: str, data: bytes, options: Options = None) -> None:
    """Write a file by path or URI; one of that name is replaced."""
    folder, _, name = absolute(place).rpartition("/")
    stores.Store(folder or "/", dict(options or {})).put(name, data)


def save_folder(folder: Path, place: str, options: Options = None) -> None:
    """Store a folder as the artifact that a URI names; a repeated call resumes an interrupted one."""
    store, name = _split(place, options)
    artifacts.put_artifact(store, name, folder)


@contextmanager
def open_text(place: str, options: Options = None) -> Iterator[TextIO]:
    """Open a UTF-8 file by path or URI for reading; a remote one is read in pieces.

    Line ends are returned as they are, as module csv wants them.
    """
    with open_binary(place, options) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as lines:
        yield lines


@contextmanager
def open_binary(place: str, options: Options = None) -> Iterator[BinaryIO]:
    """Open a file by path or URI for reading; it is seekable, and a remote one is read in pieces."""
    folder, _, name = absolute(place).rpartition("/")
    try:
        with stores.Store(folder or "/", dict(options or {})).open_reader(name) as file:
            yield file
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{place} cannot be read ({error}); give a file that exists") from error


def _split(place: str, options: Options) -> tuple[stores.Store, str]:
    """Return the store and the name of the artifact that a URI names."""
    parent, _, name = place.rstrip("/").rpartition("/")
    if parent.endswith("/") or parent.count("/") < 2 or not name or name in (".", ".."):
        raise ArtifactError(f"{place} names no folder in a bucket; give a URI such as s3://bucket/path/name")
    return stores.Store(parent, dict(options or {})), name
