"""A tmpfs with an exact number of free pages or inodes, and the folders of a job on it."""

import ctypes
import os
import shutil
from pathlib import Path

__all__ = ["FOLDERS", "SmallDisk"]

FOLDERS = {"TMPDIR": "tmp", "LSR_PROD_CACHE": "cache", "HOME": "home", "XDG_CACHE_HOME": "home/.cache"}
"""Environment variables of folders into which a job writes apart from its output -> their places on the disk."""

_PAGE = 4096
_REMOUNT, _DETACH = 32, 2
_LARGE = "size=1g,nr_inodes=100k"


class SmallDisk:
    """A mounted tmpfs; needs the right to mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._mount(0, _LARGE)

    def clear(self) -> None:
        """Delete everything, and make the empty folders of a job."""
        self.roomy()
        for path in self.folder.iterdir():
            shutil.rmtree(path)
        for name in FOLDERS.values():
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "world").mkdir()

    def used(self) -> tuple[int, int]:
        """Return used pages and inodes."""
        now = os.statvfs(self.folder)
        return (now.f_blocks - now.f_bfree) * now.f_frsize // _PAGE, now.f_files - now.f_ffree

    def limit(self, *, pages: int | None = None, inodes: int | None = None) -> None:
        """Leave that many pages or inodes free; a disk has at least one page, since 0 means no limit."""
        used = self.used()
        size = f"size={max(used[0] + pages, 1) * _PAGE}" if pages is not None else "size=1g"
        number = f"nr_inodes={used[1] + inodes}" if inodes is not None else "nr_inodes=100k"
        self._mount(_REMOUNT, f"{size},{number}")

    def roomy(self) -> None:
        """Give room again."""
        self._mount(_REMOUNT, _LARGE)

    def close(self) -> None:
        """Unmount."""
        ctypes.CDLL(None).umount2(str(self.folder).encode(), _DETACH)

    def _mount(self, flags: int, options: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"lsr-full-disk", str(self.folder).encode(), b"tmpfs", flags, options.encode()):
            number = ctypes.get_errno()
            raise PermissionError(number, f"cannot mount {self.folder} with {options}: {os.strerror(number)}")
