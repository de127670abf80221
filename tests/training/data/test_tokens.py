import pickle
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.data.layouts import TextForm, TokenSettings

TEXTS = ["unpack a tar archive", "É", "naïve café " * 40, "[MASK] 你好", "a" * 3000]


@pytest.fixture(scope="module")
def prompted(splade_tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompted") / "model"
    lengths = {"query_max_length": 16, "document_max_length": 48}
    SparseEncoder.load(splade_tiny, query_prompt="query: ", document_prompt="text: ", **lengths).save(folder)
    return folder


def test_token_ids_equal_those_of_the_encoder(prompted: Path):
    encoder = SparseEncoder.load(prompted)
    tokens = TokenSettings.of_model(prompted, query_max_length=16, document_max_length=48, plain=False)
    for kind, form in (("query", tokens.query), ("document", tokens.document)):
        found = tokens.token_ids(TEXTS, form)
        assert [text.tolist() for text in found] == encoder._token_ids(TEXTS, kind)
        assert all(text.dtype == np.int32 for text in found)


def test_lengths_are_settings_and_plain_texts_have_no_prompt(prompted: Path):
    tokens = TokenSettings.of_model(prompted, query_max_length=7, document_max_length=9, plain=True)
    assert (tokens.query, tokens.document) == (TextForm("", 7), TextForm("", 9))
    (ids,) = tokens.token_ids(["one two three four five six seven eight nine ten"], tokens.document)
    encoder = SparseEncoder.load(prompted, document_prompt="", document_max_length=9)
    assert ids.tolist() == encoder._token_ids(["one two three four five six seven eight nine ten"], "document")[0]
    assert len(ids) == 9
    again = pickle.loads(pickle.dumps(tokens))
    assert again.token_ids(["one"], again.query)[0].tolist() == tokens.token_ids(["one"], tokens.query)[0].tolist()


def test_length_without_room_for_text_is_rejected(prompted: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"query_max_length: 4 leaves no token for text; give more than 4"):
        TokenSettings.of_model(prompted, query_max_length=4, document_max_length=9, plain=False)
    with pytest.raises(ConfigError, match=r"document_max_length: 3 leaves no token"):
        TokenSettings.of_model(prompted, query_max_length=9, document_max_length=3, plain=False)
    with pytest.raises(ArtifactError, match=r"encoder_card.json is missing"):
        TokenSettings.of_model(tmp_path, query_max_length=9, document_max_length=9, plain=False)
