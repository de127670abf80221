from pathlib import Path

import pytest

from lsr_prod.jobs.training import lineage, model
from lsr_prod.model import model_digest
from lsr_prod.storage.formats.bundle_format import EncoderCard
from tests.model.tiny import tiny_checkpoint


def test_lengths_prompts_and_casing_are_written_to_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tiny_checkpoint(tmp_path / "checkpoint", "distilbert")
    settings = ["--document-max-length", "33", "--query-prompt", "w1 ", "--casing", "lowercase"]
    assert model.run([str(source), str(tmp_path / "model"), *settings]) == 0
    card = EncoderCard.load(tmp_path / "model")
    assert (card.document_max_length, card.query_max_length, card.query_prompt, card.casing) == (
        33,
        64,
        "w1 ",
        "lowercase",
    )
    assert str(tmp_path / "model") in capsys.readouterr().out


def test_unsupported_settings_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert model.run([str(tmp_path / "nowhere"), str(tmp_path / "model")]) == 2
    source = tiny_checkpoint(tmp_path / "checkpoint", "bert")
    assert model.run([str(source), str(tmp_path / "model"), "--query-max-length", "1000"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 2
    assert not (tmp_path / "model").exists()


def test_model_directory_of_another_format_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tiny_checkpoint(tmp_path / "checkpoint", "bert")
    (source / "encoder_card.json").write_text("{}")
    assert model.run([str(source), str(tmp_path / "model")]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_model_by_uri_equals_the_folder_and_has_a_lineage(
    tmp_path: Path, s3_options: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "cache"))
    store = [word for name, value in s3_options.items() for word in ("--store-option", f"{name}={value}")]
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint", "bert")
    place = f"s3://lsr/{tmp_path.name}/model"
    assert model.run([str(checkpoint), str(tmp_path / "model")]) == 0
    for source in (str(checkpoint), place):  # the second time, from the store to the store
        assert model.run([source, place, *store]) == 0
    digests = [line.rpartition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert digests == [model_digest(tmp_path / "model")] * 3
    assert lineage.run([place, *store]) == 0
    assert digests[0] in capsys.readouterr().out
    assert lineage.run([place[:-5] + "none", *store]) == 1
    assert "has no none; give the URI" in capsys.readouterr().err
    assert lineage.run([place, "--store-option", "aws_secret_access_key=x"]) == 2
    assert "it is a credential" in capsys.readouterr().err
