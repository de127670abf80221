"""Import cost of the query library, and the cache of its compiled kernels."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lsr_prod
from tests.indexing.corpus import Doc, make_index

HEAVY = {"torch", "ray", "transformers", "pydantic", "obstore", "deltalake", "onnxruntime", "numba", "tantivy"}
IMPORT = """
import sys, time
start = time.perf_counter()
import lsr_prod.search
print(time.perf_counter() - start, ",".join(sys.modules))
"""
QUERY = """
import json, logging, sys, time
logging.basicConfig()
import lsr_prod
from lsr_prod.search import Searcher
searcher = Searcher.open(sys.argv[1])
seconds = []
for _ in range(2):
    start = time.perf_counter()
    hits = searcher.search_vector({1: 1.0, 2: 1.0}).hits
    seconds.append(time.perf_counter() - start)
print(json.dumps({"hits": [hit.doc_id for hit in hits], "seconds": seconds, "home": lsr_prod.__file__}))
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


@pytest.fixture
def index(tmp_path):
    make_index(tmp_path / "index", {"a": Doc({1: 5}), "b": Doc({1: 9, 2: 9})}, vocabulary_size=4)
    return str(tmp_path / "index")


def test_import_is_fast_and_loads_no_heavy_packages():
    seconds, modules = zip(*(run(IMPORT).stdout.split() for _ in range(3)), strict=True)
    assert min(map(float, seconds)) < 1
    assert not HEAVY & set(modules[0].split(","))


def test_second_process_loads_kernels_from_cache(index, tmp_path):
    cache = tmp_path / "cache"
    cold = json.loads(run(QUERY, index, NUMBA_CACHE_DIR=str(cache)).stdout)
    assert list(cache.rglob("*.nbc"))
    warm = json.loads(run(QUERY, index, NUMBA_CACHE_DIR=str(cache)).stdout)
    assert warm["hits"] == cold["hits"] == ["b", "a"]
    print(f"first query: {cold['seconds'][0]:.2f} s cold, {warm['seconds'][0]:.2f} s from the cache")
    assert warm["seconds"][0] < cold["seconds"][0] / 2


def test_read_only_installation_caches_kernels_in_user_cache(index, tmp_path):
    site = read_only_copy(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    ran = run(QUERY, index, PYTHONPATH=str(site), HOME=str(home), XDG_CACHE_HOME=str(home / "cache"))
    answer = json.loads(ran.stdout)
    assert answer["home"].startswith(str(site))
    assert answer["hits"] == ["b", "a"]
    assert list(home.rglob("*.nbc"))
    assert "NUMBA_CACHE_DIR" not in ran.stderr


def test_without_writable_cache_kernels_compile_with_warning(index, tmp_path):
    site = read_only_copy(tmp_path)
    nowhere = tmp_path / "file"
    nowhere.touch()
    ran = run(QUERY, index, PYTHONPATH=str(site), HOME=str(nowhere), XDG_CACHE_HOME=str(nowhere / "cache"))
    assert json.loads(ran.stdout)["hits"] == ["b", "a"]
    assert "NUMBA_CACHE_DIR" in ran.stderr


def read_only_copy(folder: Path) -> Path:
    """The package in a folder where no user, not even root, can create ``__pycache__``."""
    site = folder / "site"
    source = Path(lsr_prod.__file__).parent
    shutil.copytree(source, site / "lsr_prod", ignore=shutil.ignore_patterns("__pycache__"))
    for package in [site / "lsr_prod", *(path for path in (site / "lsr_prod").rglob("*") if path.is_dir())]:
        (package / "__pycache__").touch()
    return site
