"""Tables of ``lsr-prod train`` and ``lsr-prod inspect lineage``."""

import pytest

from lsr_prod.jobs.training import print_lineage, print_stages
from lsr_prod.training.lineage import Ancestor


def test_print_stages_shows_one_row_per_stage(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "number": 0,
        "kind": "finetune",
        "skipped": True,
        "model": "abcd" * 16,
        "steps": 4000,
        "loss": 0.12345,
    }
    print_stages([row, {"number": 1, "kind": "other", "skipped": False, "model": "f" * 64}])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in lines[0].strip("│").split("│")] == [
        "0", "finetune", "before", "4,000", "", "0.123", "", "", "", "", "", "abcdabcdabcd",
    ]  # fmt: skip
    assert "now" in lines[1]


def test_print_lineage_shows_one_row_per_ancestor(capsys: pytest.CaptureFixture[str]) -> None:
    training = {"stage": "finetune", "settings": {"seed": 7}, "rows": 1234, "steps": 5, "training_set": "9" * 64}
    print_lineage([Ancestor("a" * 64, training), Ancestor("b" * 64, None)])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in lines[0].strip("│").split("│")] == [
        "a" * 64, "finetune", "1,234", "5", "7", "9" * 12,
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[1].strip("│").split("│")] == ["b" * 64, "", "", "", "", ""]
