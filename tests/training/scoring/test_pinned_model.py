"""A pinned model is opened only if every file is as it was."""

import shutil
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, ConfigError, LineageError
from lsr_prod.model import model_digest
from lsr_prod.storage.folders import save_folder
from lsr_prod.training.scoring.teacher import PinnedModel


def test_changed_or_absent_model_is_not_opened(cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(cross_encoder, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    pinned = PinnedModel.of("model", {}, field="score.teacher.model")
    monkeypatch.chdir("/")
    assert pinned.open() == tmp_path / "model"
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(LineageError, match=r"has the digest .* planned with"):
        pinned.open()
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(ArtifactError, match="is not on node"):
        pinned.open()


def test_model_of_an_object_store_is_fetched(
    cross_encoder: Path, s3_options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path))
    save_folder(cross_encoder, "s3://lsr/models/cross", s3_options)
    pinned = PinnedModel.of("s3://lsr/models/cross", s3_options, field="score.teacher.model")
    assert pinned.digest == model_digest(cross_encoder) == model_digest(pinned.open())


def test_unknown_id_or_uri_names_the_setting(s3_options: dict[str, str]):
    with pytest.raises(ConfigError, match=r"^score\.teacher\.model: .* neither a folder nor a Hugging Face id"):
        PinnedModel.of("nobody/nothing", {}, field="score.teacher.model")
    with pytest.raises(ConfigError, match=r"^score\.teacher\.model: .* has no absent"):
        PinnedModel.of("s3://lsr/models/absent", s3_options, field="score.teacher.model")
