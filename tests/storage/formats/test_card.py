import json
from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, ConfigError, FormatVersionError
from lsr_prod.storage.formats.bundle_format import CARD_FILE, EncoderCard

CARD = EncoderCard("BertForMaskedLM", 5, "0" * 64, casing="lowercase", query_max_length=8, document_prompt="d: ")


def test_card_round_trip(tmp_path: Path) -> None:
    (tmp_path / CARD_FILE).write_bytes(CARD.to_bytes())
    assert EncoderCard.load(tmp_path) == CARD


def test_lengths_and_prompts_depend_on_kind() -> None:
    assert (CARD.max_length("query"), CARD.max_length("document")) == (8, 256)
    assert (CARD.prompt("query"), CARD.prompt("document")) == ("", "d: ")


def test_other_files_are_refused_as_card(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="missing"):
        EncoderCard.load(tmp_path)
    (tmp_path / CARD_FILE).write_text(json.dumps({**CARD.to_json(), "format": 99}))
    with pytest.raises(FormatVersionError):
        EncoderCard.load(tmp_path)
    (tmp_path / CARD_FILE).write_text(json.dumps({**CARD.to_json(), "color": 1}))
    with pytest.raises(ArtifactError, match="color"):
        EncoderCard.load(tmp_path)


def test_default_query_encoder_is_not_written_to_the_card(tmp_path: Path) -> None:
    assert "query_encoder" not in CARD.to_json()
    (tmp_path / CARD_FILE).write_bytes(CARD.to_bytes())
    assert EncoderCard.load(tmp_path).query_encoder == "model"
    idf = replace(CARD, query_encoder="idf")
    (tmp_path / CARD_FILE).write_bytes(idf.to_bytes())
    assert EncoderCard.load(tmp_path) == idf
    CARD.check_model_encodes("query")
    idf.check_model_encodes("document")
    with pytest.raises(ConfigError, match="no model reads queries"):
        idf.check_model_encodes("query")
