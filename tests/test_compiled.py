"""Kernels of an image are loaded from its folder, for the best CPU of the folder, and the folder is never written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from lsr_prod.compiled import compiled

@compiled
def total(numbers):
    result = numbers[0]
    for number in numbers[1:]:
        result += number
    return result
"""
COMPILE = """
import numba, sums
sums.total.compile((numba.types.Array(numba.int64, 1, "C"),))
"""
RUN = """
import json, logging, sys
logging.basicConfig()
import numpy as np, numba, sums
from lsr_prod.compiled import shipped_cpu
answers = [int(sums.total(np.arange(4))), float(sums.total(np.arange(4.0)))]
hits = sum(sums.total.stats.cache_hits.values())
print(json.dumps({"answers": answers, "hits": hits, "cpu": numba.config.CPU_NAME}))
"""


def run(code: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "LSR_PROD_"))}
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**settings, "PYTHONPATH": path, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module, and kernels of its function for one type and one CPU level."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "sums.py").write_text(MODULE)
    kernels = folder / "kernels"
    run(COMPILE, folder, NUMBA_CACHE_DIR=str(kernels), NUMBA_CPU_NAME="x86-64-v2", NUMBA_CPU_FEATURES="")
    (kernels / "cpus").write_text("x86-64-v2\nx86-64-v9\n")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_shipped_kernel_is_loaded_and_missing_type_is_compiled_with_warning_and_not_saved(shipped):
    before = files(shipped / "kernels")
    ran = run(RUN, shipped, LSR_PROD_KERNELS=str(shipped / "kernels"), NUMBA_CACHE_DIR=str(shipped / "cache"))
    assert json.loads(ran.stdout) == {"answers": [6, 6.0], "hits": 1, "cpu": "x86-64-v2"}
    assert ran.stderr.count("a kernel was compiled that the image lacks") == 1
    assert files(shipped / "kernels") == before
    assert not (shipped / "cache").exists()


@pytest.mark.parametrize("cpus", ["x86-64-v9\n", None])
def test_cpu_without_shipped_kernels_compiles_with_warning_and_saves(shipped, tmp_path, cpus):
    if cpus:
        (tmp_path / "cpus").write_text(cpus)
    ran = run(RUN, shipped, LSR_PROD_KERNELS=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert json.loads(ran.stdout) == {"answers": [6, 6.0], "hits": 0, "cpu": None}
    assert ran.stderr.count("the image has no kernels for this CPU") == 1
    assert list((tmp_path / "cache").rglob("*.nbc"))
