import errno
import os
import stat
from pathlib import Path

import pytest

from lsr_prod.cluster.address import prepare_token, read_token, resolve_mode
from lsr_prod.errors import ConfigError, DiskFullError


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


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EROFS, ConfigError)])
def test_full_disk_is_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "link", full)
    with pytest.raises(kind, match="auth_token"):
        prepare_token({})
    assert not list((tmp_path / ".ray").iterdir())


def test_token_file_that_others_can_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("made by Ray")
    path.chmod(0o644)
    prepare_token({})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token({}) == "made by Ray"


@pytest.mark.parametrize("given", [None, "", "token", "TOKEN"])
def test_mode_is_token_unless_another_is_set(given: str | None) -> None:
    environment = {} if given is None else {"RAY_AUTH_MODE": given}
    assert resolve_mode(environment)
    assert environment["RAY_AUTH_MODE"].lower() == "token"


def test_mode_disabled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert not resolve_mode({"RAY_AUTH_MODE": "disabled"})
    assert "Ray demands no token" in caplog.text


def test_unknown_mode_is_refused_because_ray_would_demand_no_token() -> None:
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE: 'tokens' is not a mode"):
        resolve_mode({"RAY_AUTH_MODE": "tokens"})


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff"])
def test_token_file_without_a_token_is_one_config_error(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="RAY_AUTH_TOKEN_PATH") as raised:
        read_token({"RAY_AUTH_TOKEN_PATH": str(path)})
    assert "\n" not in str(raised.value)


def test_token_of_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the file\n")
    file = {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    assert read_token(file) == "of the file"
    assert read_token({**file, "RAY_AUTH_TOKEN": "given"}) == "given"
