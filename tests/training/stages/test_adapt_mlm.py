"""New tokens of the stage ``adapt_mlm``, and the old vocabulary that they are compared with."""

import json
from pathlib import Path
from typing import Any

from lsr_prod.config.language import AdaptMlmSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.stages.language import find_new_tokens, reference_file
from tests.model.tiny import VOCABULARY, tiny_checkpoint


def test_new_tokens_are_those_missing_from_the_old_vocabulary(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "start", "bert")
    encoder = SparseEncoder.load(folder)
    stage = {"stage": "adapt_mlm", "data": {"paths": ["x"], "kind": "texts"}, "steps": 1}

    def new(**changes: Any) -> tuple[int, ...]:
        return find_new_tokens(AdaptMlmSettings.model_validate({**stage, **changes}), encoder, folder)

    assert new(new_token_weight=1) == ()
    (folder / "vocabulary_transfer.json").write_text('{"new": [5, 9]}')
    assert new() == (5, 9)
    other = json.loads((folder / "tokenizer.json").read_text())
    for word in ("w1", "W8"):
        del other["model"]["vocab"][word]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "tokenizer.json").write_text(json.dumps(other))
    wanted = tuple(sorted(VOCABULARY.index(word) for word in ("w1", "W8")))
    assert new(reference=str(tmp_path / "old")) == wanted
    assert new(reference=str(tmp_path / "old" / "tokenizer.json")) == wanted


def test_reference_is_a_file_or_a_folder_that_contains_it(tmp_path: Path) -> None:
    SparseEncoder.load(tiny_checkpoint(tmp_path / "plain", "bert")).save(tmp_path / "masked")
    path = tmp_path / "masked" / "tokenizer.json"
    assert reference_file(str(path)) == reference_file(str(tmp_path / "masked")) == path
