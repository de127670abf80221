"""Import cost of the query library, and what happens without its compiled kernels."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lsr_prod
from lsr_prod.extras import _EXTRAS

HEAVY = {"tantivy"}.union(*_EXTRAS.values())
IMPORT = """
import sys, time
start = time.process_time()
import numpy, pyarrow
base = time.process_time()
exec(sys.argv[1])
print((time.process_time() - base) / (base - start), ",".join(sys.modules))
"""


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        cwd=environment.get("PYTHONPATH"),  # "-c" puts the current folder before PYTHONPATH
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


@pytest.mark.parametrize("statement", ["import lsr_prod", "from lsr_prod import Searcher", "import lsr_prod.search"])
def test_import_costs_little_next_to_numpy_and_pyarrow_and_loads_no_heavy_packages(statement):
    """A ratio of CPU times, about 2 today: how long a second is depends on the machine and on what else it does."""
    for _ in range(3):
        ratio, modules = run(IMPORT, statement).stdout.split()
        if float(ratio) < 4:
            break
    assert float(ratio) < 4
    assert not HEAVY & set(modules.split(","))


def test_package_without_kernels_says_how_to_get_them(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(Path(lsr_prod.__file__).parent, tmp_path / "lsr_prod", ignore=ignored)
    code = "try:\n import lsr_prod.search\nexcept ImportError as error:\n print(error)"
    assert "run `make kernels` in a source tree" in run(code, PYTHONPATH=str(tmp_path)).stdout
