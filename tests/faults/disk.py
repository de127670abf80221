"""A disk that can be filled: a tmpfs of a few megabytes."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Disk", "small_disk"]

_PAGE = 4096


class Disk:
    """A mounted tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def filled(self, pages: int) -> Iterator[None]:
        """Fill the disk except for some pages, until the context ends."""
        balloon = self.folder / "balloon"
        try:
            with balloon.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(_PAGE))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                file.truncate(max(file.tell() - pages * _PAGE, 0))
            yield
        finally:
            balloon.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, megabytes: int = 4) -> Iterator[Disk]:
    """Mount a tmpfs on a folder, and unmount it with the context.

    Raises:
        PermissionError: this process may not mount; ``python -m tests.faults`` restarts in a user namespace then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "lsr-faults", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(
            f"cannot mount a tmpfs to cause ENOSPC: {done.stderr.strip()}; run as root or allow user namespaces"
        )
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
