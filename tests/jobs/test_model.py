from pathlib import Path

import pytest

from lsr_prod.formats.card import EncoderCard
from lsr_prod.jobs.model import main
from tests.model.tiny import tiny_checkpoint


def test_lengths_prompts_and_casing_are_written_to_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tiny_checkpoint(tmp_path / "checkpoint", "distilbert")
    settings = ["--document-max-length", "33", "--query-prompt", "w1 ", "--casing", "lowercase"]
    assert main([str(source), str(tmp_path / "model"), *settings]) == 0
    card = EncoderCard.load(tmp_path / "model")
    assert (card.document_max_length, card.query_max_length, card.query_prompt, card.casing) == (
        33,
        64,
        "w1 ",
        "lowercase",
    )
    assert str(tmp_path / "model") in capsys.readouterr().out


def test_unsupported_settings_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere"), str(tmp_path / "model")]) == 2
    source = tiny_checkpoint(tmp_path / "checkpoint", "bert")
    assert main([str(source), str(tmp_path / "model"), "--query-max-length", "1000"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 2
    assert not (tmp_path / "model").exists()


def test_model_directory_of_another_format_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tiny_checkpoint(tmp_path / "checkpoint", "bert")
    (source / "encoder_card.json").write_text("{}")
    assert main([str(source), str(tmp_path / "model")]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
