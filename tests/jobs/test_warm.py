"""``lsr-prod warm`` compiles the kernels once; later processes load them."""

import os
import re
import subprocess
import sys

from lsr_prod.jobs.command import main
from tests.indexing.corpus import Doc, make_index


def test_warm_prints_cold_start_and_next_process_loads_compiled_kernels(tmp_path):
    make_index(tmp_path / "index", {"a": Doc({0: 5, 1: 2}), "b": Doc({1: 9})}, vocabulary_size=4)
    command = [sys.executable, "-m", "lsr_prod", "warm", str(tmp_path / "index")]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    seconds = []
    for _ in range(2):
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
        assert ran.stderr == ""
        seconds.append(float(re.search(r"first queries ([\d.]+) s", ran.stdout)[1]))
    assert seconds[1] < seconds[0] / 2
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) >= 2


def test_warm_exits_1_with_one_line_without_index(tmp_path, capsys):
    assert main(["warm", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("lsr-prod warm failed: PublicationError: ")
