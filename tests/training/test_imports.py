"""Modules that tasks and actors of Ray import for work without a model."""

import subprocess
import sys

import pytest


@pytest.mark.long
def test_preparation_mining_and_counting_load_no_torch() -> None:
    modules = "lsr_prod.training.data.prepare, lsr_prod.training.negatives.job, lsr_prod.training.scoring.job"
    code = f"import sys, {modules}; print(sorted({{'torch', 'transformers'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
