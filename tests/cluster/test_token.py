import stat
from pathlib import Path

import pytest

from lsr_prod.cluster.token import prepare_token
from lsr_prod.errors import ConfigError


def test_token_is_created_once_and_only_its_user_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare_token({})
    path = tmp_path / ".ray" / "auth_token"
    token = path.read_text()
    assert len(token) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    prepare_token({})
    assert path.read_text() == token
    assert [one.name for one in path.parent.iterdir()] == ["auth_token"]


@pytest.mark.parametrize("name", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_given_token_is_left_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare_token({name: "given"})
    assert not list(tmp_path.iterdir())


def test_home_that_cannot_be_written_is_one_config_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="cannot be created") as raised:
        prepare_token({})
    assert "\n" not in str(raised.value)
