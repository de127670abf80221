"""The record of a stage is written once, and what is damaged is named."""

import json
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, FormatVersionError
from lsr_prod.storage import Store
from lsr_prod.training.lineage import StageRecord, load_record, save_record

RECORD = StageRecord("a" * 64, "b" * 64, {"stage": "finetune"}, {"steps": 3, "loss": 0.5})


def test_first_record_is_kept(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert load_record(store, "x") is None
    assert save_record(store, "x", RECORD) is RECORD
    other = StageRecord("c" * 64, "b" * 64, {}, {})
    assert save_record(store, "x", other) == RECORD == load_record(store, "x")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "model": "a", "parent": "b"}', "\x00"]
)
def test_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    store = Store(str(tmp_path))
    store.put_new("stages/x.json", text.encode())
    with pytest.raises(ArtifactError, match=r"stages/x\.json is damaged.*delete it"):
        load_record(store, "x")


def test_newer_format_is_rejected(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.put_new("stages/x.json", json.dumps({"format": 2}).encode())
    with pytest.raises(FormatVersionError):
        load_record(store, "x")
