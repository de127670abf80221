"""Compile the kernels of ``lsr_prod/search/kernels/src`` with the C compiler of Python: a hook, and a command.

The extension uses Python's stable ABI, so that one file serves Python 3.11 and later. Hot functions are compiled for
several levels of x86-64; a process chooses by its CPU, so the machine of the build does not matter.
"""

import hashlib
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path(__file__).parent / "lsr_prod" / "search" / "kernels"
LIBRARY = FOLDER / "native.abi3.so"
# Scores are float32 sums in a given order, which fused multiplications would round differently.
FLAGS = ("-std=gnu11", "-O3", "-g0", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-pthread")
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def digest() -> str:
    """Return the sha256 of the sources, which the compiled kernels carry."""
    found = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted([*(FOLDER / "src").glob("*.[ch]"), FOLDER / "src" / "native.pyx"]):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def compile_kernels(target: Path = LIBRARY, *flags: str) -> None:
    """Compile the sources into ``target``."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    platform = ("-undefined", "dynamic_lookup") if sysconfig.get_platform().startswith("macosx") else ()
    source, draft = FOLDER / "src", target.with_suffix(".draft")
    command = [*compiler, *FLAGS, *flags, f"-I{source}"]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "native.c")
        _run([sys.executable, "-m", "cython", "-3", str(source / "native.pyx"), "-o", str(made)])
        _run([*command, *WARNINGS, "-c", *map(str, sorted(source.glob("*.c")))], folder)
        api = ("-DCYTHON_LIMITED_API=1", "-DPy_LIMITED_API=0x030B0000", f'-DSOURCES="{digest()}"')
        objects = map(str, sorted(Path(folder).glob("*.o")))
        python = f"-I{sysconfig.get_path('include')}"
        _run([*command, "-shared", *platform, *api, python, str(made), *objects, "-o", str(draft)])
    draft.replace(target)  # a process that has the file mapped keeps the old one
    _hide_from_git()


def _run(command: list[str], folder: str | None = None) -> None:
    try:
        subprocess.run(command, check=True, cwd=folder)  # noqa: S603 - the compiler of Python
    except FileNotFoundError as error:
        raise SystemExit(f"no C compiler: {command[0]} is not installed; install gcc and the headers of C") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit("the kernels do not compile; see the messages of the compiler above") from error


def _hide_from_git() -> None:
    """Hide the compiled file by the exclude file of the clone: .gitignore would keep it out of submitted jobs."""
    command = ["git", "-C", str(FOLDER), "rev-parse", "--path-format=absolute", "--git-path", "info/exclude"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git of the developer
    except FileNotFoundError:  # a source archive
        return
    if found.returncode == 0:
        path = Path(found.stdout.strip())
        lines = path.read_text().splitlines() if path.exists() else []
        if LIBRARY.name not in lines:
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join([*lines, LIBRARY.name]) + "\n")


class KernelsHook(BuildHookInterface[Any]):
    """Puts the compiled kernels into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Compile, and tag the wheel with the platform."""
        if self.target_name != "wheel":
            return
        compile_kernels()
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append("lsr_prod/search/kernels/native.abi3.so")


if __name__ == "__main__":
    compile_kernels()
