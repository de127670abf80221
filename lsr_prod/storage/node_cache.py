"""The verified cache of a node: artifacts of object stores as local folders that any number of processes share.

::

    <cache>/
      lock                               held while artifacts are added or evicted
      files/<sha256>                     every file once, verified when it was fetched; <sha256>.part: an incomplete one
      artifacts/<source>/<digest>/       an artifact: hard links to those files, and small manifests
      artifacts/<source>/<digest>.use    locked by every process that uses the artifact, touched when a use begins

Every name appears by a rename, whole. The folder must be on a local disk and belong to one user.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lsr_prod.logs import get_log
from lsr_prod.storage import cache_folder, drafts, remote, stores, transfer
from lsr_prod.storage.formats.digests import FileDigest, digest_path

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Contents:
    """Content of an artifact in an object store."""

    source: stores.Store  # store of the files
    files: tuple[FileDigest, ...]  # every file: its path in the artifact, sha256 and size
    remedy: str  # what a user can do if a file is missing or damaged; ends the message
    manifests: Mapping[str, bytes] = field(default_factory=dict)  # small files that are written from memory, by path


@dataclass(frozen=True, slots=True)
class Cached:
    """An artifact in the cache."""

    folder: Path  # the artifact; its files cannot be written
    fetched: tuple[FileDigest, ...] = ()  # files that this call fetched, and so verified


class NodeCache:
    """Artifacts of object stores as local folders. Safe to share between threads; processes may share the folder."""

    def __init__(self, folder: str | Path, max_bytes: int | None = None, *, connections: int = 4) -> None:
        self._folder = Path(folder).absolute()
        self._max_bytes = max_bytes
        self._connections = connections
        self._guard = threading.Lock()
        self._marks: dict[Path, list[int]] = {}

    def fetch(self, source: str, digest: str, read_contents: Callable[[], Contents]) -> Cached:
        """Return an artifact as a local folder, which stays until ``release``; fetch what the cache lacks.

        An interrupted fetch leaves no wrong file, and the next call resumes it.
        """
        place = self.place(source, digest)
        if not self.writable and place.is_dir():  # nothing is evicted
            return Cached(place)
        with cache_folder.cache_errors(self._folder):
            if (mark := cache_folder.mark_used(place)) is not None:
                return self._keep(place, mark)
            contents = read_contents()
            with cache_folder.locked(self._folder / "lock"):
                if (mark := cache_folder.mark_used(place)) is not None:  # another process was quicker
                    return self._keep(place, mark)
                fetched = self._add(contents, place)
                mark = cache_folder.mark_used(place)
                assert mark is not None  # artifacts are evicted under the lock
                self._keep(place, mark)
                return Cached(place, fetched)

    def repair(self, artifact: Path, contents: Contents, *, verify: bool = True) -> int:
        """Fetch files of an artifact again that are missing or damaged; others may read the artifact meanwhile.

        Returns:
            Number of files that were replaced.
        """
        damaged = [file for file in contents.files if not _is_whole(artifact / file.path, file, verify)]
        lost = [path for path, data in contents.manifests.items() if not _has(artifact / path, data)]
        if not damaged and not lost:
            return 0
        with cache_folder.cache_errors(self._folder), cache_folder.locked(self._folder / "lock"):
            # Another process may have been quicker.
            damaged = [file for file in damaged if not _is_whole(artifact / file.path, file, verify)]
            files = self._folder / "files"
            for file in damaged:
                if not _is_whole(files / file.sha256, file, verify):
                    (files / file.sha256).unlink(missing_ok=True)
            self._fetch_missing(replace(contents, files=tuple(damaged)))
            for file in damaged:
                drafts.link_file(files / file.sha256, artifact / file.path)
            for path in lost:
                drafts.write_file(artifact / path, contents.manifests[path])
        fields = {"artifact": artifact.name, "paths": [*(file.path for file in damaged), *lost]}
        log.warning("damaged files in the cache replaced", extra={"fields": fields})
        return len(damaged) + len(lost)

    def release(self, artifact: Path) -> None:
        """End one use of a folder that ``fetch`` returned; an artifact without a use can be evicted."""
        with self._guard:
            if marks := self._marks.get(artifact):
                os.close(marks.pop(0))

    @property
    def writable(self) -> bool:
        """This process can add artifacts; a folder of an image or of another user is read-only."""
        return not self._folder.exists() or os.access(self._folder, os.W_OK)

    def place(self, source: str, digest: str) -> Path:
        """Return the folder of an artifact in this cache, present or not."""
        return self._folder / "artifacts" / source / digest

    def keep_one_use(self, artifact: Path) -> None:
        """End all uses of an artifact by this process but one."""
        with self._guard:
            marks = self._marks.get(artifact, [])
            while len(marks) > 1:
                os.close(marks.pop(0))

    def close(self) -> None:
        """End every use."""
        with self._guard:
            for marks in self._marks.values():
                while marks:
                    os.close(marks.pop())

    def _add(self, contents: Contents, place: Path) -> tuple[FileDigest, ...]:
        start = time.perf_counter()
        missing, fetched = self._fetch_missing(contents)
        self._assemble(contents, place)
        seconds = round(time.perf_counter() - start, 3)
        fields = {"source": contents.source.uri, "artifact": place.name, "bytes": fetched, "seconds": seconds}
        log.info("artifact fetched", extra={"fields": fields})
        return missing

    def _fetch_missing(self, contents: Contents) -> tuple[tuple[FileDigest, ...], int]:
        """Make room and fetch the files that the cache lacks; return them, and the bytes fetched."""
        missing = cache_folder.make_room(self._folder, {file.sha256: file for file in contents.files}, self._max_bytes)

        def fetch(file: FileDigest) -> int:
            return transfer.fetch_file(contents.source, file, self._folder / "files", remedy=contents.remedy)

        fetched = sum(remote.in_threads(fetch, missing, self._connections))
        drafts.sync_folder(self._folder / "files")
        return missing, fetched

    def _assemble(self, contents: Contents, place: Path) -> None:
        """Make the folder of the artifact from links to the files."""
        with drafts.Draft(place) as draft:
            for file in contents.files:
                target = draft.folder / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(self._folder / "files" / file.sha256, target)
            for path, data in contents.manifests.items():
                drafts.create_file(draft.folder / path, (data,))
            draft.seal()

    def _keep(self, place: Path, mark: int) -> Cached:
        with self._guard:
            self._marks.setdefault(place, []).append(mark)
        return Cached(place)


def _is_whole(path: Path, file: FileDigest, verify: bool) -> bool:
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    return not verify or digest_path(path) == file.sha256


def _has(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data
