"""The configuration of HAProxy, and where its files are; test_serving.py runs it."""

import resource
import socket
from pathlib import Path

import pytest
from ray.serve._private import haproxy as of_ray
from ray.serve._private.haproxy_templates import HAPROXY_CONFIG_TEMPLATE

from lsr_prod.cluster.session import own_folder
from lsr_prod.errors import ConfigError
from lsr_prod.serving.haproxy import (
    closed_template,
    haproxy_folder,
    most_connections,
    place_files,
    remove_leftovers,
    write_lost_answer,
)


def test_ray_listens_on_all_interfaces_and_we_do_not() -> None:
    assert "bind *:" in HAPROXY_CONFIG_TEMPLATE  # else there is nothing to close any more
    template = closed_template(HAPROXY_CONFIG_TEMPLATE)
    binds = [line.split()[1] for line in template.splitlines() if line.strip().startswith("bind ")]
    assert binds == ["{{", "{{"]  # the hosts of HTTP and of gRPC, which is off
    sections = [line for line in template.splitlines() if line.startswith(("frontend", "listen"))]
    assert sections == ["frontend http_frontend", "frontend grpc_frontend"]
    assert "mode 600 level admin" in template
    assert "666" not in template
    assert "log_target" not in template
    assert closed_template(HAPROXY_CONFIG_TEMPLATE).count("backend default_backend") == 2


def test_a_request_is_buffered_so_that_another_router_can_answer_it() -> None:
    template = closed_template(HAPROXY_CONFIG_TEMPLATE)
    defaults = template[template.index("\ndefaults\n") : template.index("\nfrontend ")]
    options = [line.strip() for line in defaults.splitlines()]
    assert {"option http-buffer-request", "timeout connect 300ms", "option redispatch 1"} <= set(options)
    ray_timeout = next(place for place, line in enumerate(options) if "{{ config.timeout_connect_s }}" in line)
    assert ray_timeout < options.index("timeout connect 300ms")  # the last one counts


@pytest.mark.parametrize(
    "changed",
    [("listen stats", "listen numbers"), ("bind {{ config.frontend_host", "bind *"), ("option redispatch", "")],
)
def test_an_unknown_configuration_is_refused(changed: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="in a way that lsr_prod cannot close"):
        closed_template(HAPROXY_CONFIG_TEMPLATE.replace(*changed))


def test_files_are_in_a_folder_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    assert haproxy_folder() == own_folder() / "haproxy"
    monkeypatch.setenv("RAY_TMPDIR", "/tmp/" + "a" * 60)
    with pytest.raises(ConfigError, match=r"RAY_TMPDIR: the sockets of HAProxy .* at most \d+ bytes"):
        haproxy_folder()
    monkeypatch.setattr("lsr_prod.serving.haproxy.haproxy_folder", lambda: tmp_path / "haproxy")
    monkeypatch.setenv("RAY_SERVE_HAPROXY_CONFIG_FILE_LOC", "/etc/mine.cfg")
    names = [name for name in vars(of_ray) if name.startswith("RAY_SERVE_HAPROXY_")]
    for name in names:
        monkeypatch.setattr(of_ray, name, getattr(of_ray, name))
    before = of_ray.RAY_SERVE_HAPROXY_CONFIG_FILE_LOC
    place_files(of_ray)
    assert before == of_ray.RAY_SERVE_HAPROXY_CONFIG_FILE_LOC  # the variable wins
    placed = {name: getattr(of_ray, name) for name in names if name != "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC"}
    assert [name for name, value in placed.items() if "/tmp/haproxy-serve" in str(value)] == []
    assert (tmp_path / "haproxy").stat().st_mode & 0o777 == 0o700


def test_folders_of_a_killed_haproxy_are_removed(tmp_path: Path) -> None:
    kept = [tmp_path / "running", tmp_path / "starting"]
    killed = tmp_path / "killed"
    for folder in (*kept, killed):
        folder.mkdir()
    with socket.socket(socket.AF_UNIX) as running:
        running.bind(str(kept[0] / "admin.sock"))
        running.listen()
        with socket.socket(socket.AF_UNIX) as ended:
            ended.bind(str(killed / "admin.sock"))
            ended.listen()
        remove_leftovers(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_lost_router_is_answered_with_503(tmp_path: Path) -> None:
    write_lost_answer(str(tmp_path / "lost"))
    head, _, body = (tmp_path / "lost").read_bytes().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 1" in head
    assert f"\r\nContent-Length: {len(body)}".encode() in head


def test_connections_fit_the_open_files_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, expected in ((128, 36), (20, 8), (1 << 20, 4096), (resource.RLIM_INFINITY, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert most_connections() == expected
