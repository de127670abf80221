"""A model directory says what made it, and every step back can be walked."""

import json
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, FormatVersionError
from lsr_prod.jobs.command import main
from lsr_prod.model import model_digest
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import put_artifact
from lsr_prod.storage.formats.bundle_format import CARD_FILE, EncoderCard
from lsr_prod.training.lineage import TRAINING_FILE, lineage, read_training, write_lineage

CARD = EncoderCard("BertForMaskedLM", 5, "0" * 64)


def make(folder: Path, content: str) -> Path:
    folder.mkdir()
    (folder / "weights").write_text(content)
    (folder / CARD_FILE).write_bytes(CARD.to_bytes())
    return folder


@pytest.fixture
def family(tmp_path: Path) -> list[Path]:
    """Three models, the last one made of the second, that of the first; all are in the work store."""
    store, folders = Store(str(tmp_path / "work")), [make(tmp_path / "0", "0")]
    put_artifact(store, f"models/{model_digest(folders[0])}", folders[0])
    for number in (1, 2):
        folder = make(tmp_path / str(number), str(number))
        training = {"stage": "finetune", "settings": {"seed": number}, "steps": 10 * number}
        parents = EncoderCard.load(folders[-1]).parents
        digest = write_lineage(folder, parent=model_digest(folders[-1]), parents=parents, training=training)
        assert digest == model_digest(folder)
        put_artifact(store, f"models/{digest}", folder)
        folders.append(folder)
    return folders


def test_lineage_lists_ancestors(family: list[Path], tmp_path: Path) -> None:
    found = lineage(family[2], Store(str(tmp_path / "work")))
    assert [one.model for one in found] == [model_digest(folder) for folder in reversed(family)]
    assert [one.training and one.training["steps"] for one in found] == [20, 10, None]
    assert [one.training is None for one in lineage(family[2])] == [False, True, True]
    assert lineage(family[0])[0].training is None


def test_write_lineage_is_deterministic(tmp_path: Path) -> None:
    digests = {
        write_lineage(make(tmp_path / name, "x"), parent="a" * 64, parents=(), training={"stage": "s", "settings": {}})
        for name in ("one", "two")
    }
    assert len(digests) == 1


def test_lineage_rejects_card_and_training_that_disagree(family: list[Path]) -> None:
    training = json.loads((family[2] / TRAINING_FILE).read_text())
    (family[2] / TRAINING_FILE).write_text(json.dumps({**training, "parent": "b" * 64}))
    with pytest.raises(ArtifactError, match="the card names the parent"):
        lineage(family[2])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "parent": 3, "stage": "x"}', "\x00"])
def test_damaged_training_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / TRAINING_FILE).write_text(text)
    with pytest.raises(ArtifactError, match=r"training\.json is damaged"):
        read_training(tmp_path)
    (tmp_path / TRAINING_FILE).write_text('{"format": 2}')
    with pytest.raises(FormatVersionError):
        read_training(tmp_path)


def test_lineage_command_prints_ancestors(
    family: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "lineage", str(family[2]), "--work", str(tmp_path / "work")]) == 0
    lines = capsys.readouterr().out.splitlines()
    digests = [model_digest(folder) for folder in reversed(family)]
    assert [
        next(digest for digest in digests if digest in line) for line in lines if "│" in line and "0" in line
    ] == digests
    assert main(["inspect", "lineage", str(tmp_path)]) == 1
    assert "encoder_card.json" in capsys.readouterr().err
