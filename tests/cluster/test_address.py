"""Control stores of Ray with and without a token, and what a job says about each."""

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from lsr_prod.cluster.address import check_address
from lsr_prod.errors import ConfigError
from lsr_prod_contrib.doctor.checks import check_cluster


@pytest.fixture
def open_store() -> Iterator[str]:
    """Address of a control store that demands no token: the program that ``ray start`` starts first."""
    import ray

    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    program = Path(ray.__file__).parent / "core" / "src" / "ray" / "gcs" / "gcs_server"
    with tempfile.TemporaryDirectory(prefix="gcs-") as folder:
        process = subprocess.Popen(
            [
                str(program), f"--log_dir={folder}", f"--gcs_server_port={port}", "--config_list=e30=",
                "--node-ip-address=127.0.0.1", "--session-name=open", f"--session-dir={folder}",
                f"--node-id={'0' * 56}", "--metrics-agent-port=0",
            ],
            env={**os.environ, "RAY_AUTH_MODE": "disabled"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait(port)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(port)


def test_cluster_that_demands_no_token_is_refused(open_store: str) -> None:
    with pytest.raises(ConfigError, match="demands no token"):
        check_address(open_store, token=True)
    assert check_cluster(open_store).verdict == "fault"
    check_address(open_store, token=False)


@pytest.mark.long
def test_cluster_is_accepted_only_with_its_own_token(ray_local: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    check_address(address, token=True)
    assert check_cluster(address).verdict == "ok"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    with pytest.raises(ConfigError, match=r"RAY_AUTH_TOKEN_PATH: the cluster at .* refuses the token"):
        check_address(address, token=True)


def test_listener_that_is_no_ray_receives_no_token() -> None:
    received: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    def answer() -> None:
        with suppress(OSError):  # the server was shut down
            while True:
                connection, _ = server.accept()
                with connection:
                    received.append(connection.recv(65536))

    with ThreadPoolExecutor(1) as thread:
        thread.submit(answer)
        try:
            with pytest.raises(ConfigError, match="no Ray answers"):
                check_address(f"127.0.0.1:{port}", token=True)
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
    assert any(b"PRI * HTTP/2.0" in some for some in received)
    assert not any(b"Bearer" in some for some in received)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "127.0.0.1", "ray:127.0.0.1:1", "127.0.0.1:port"])
def test_text_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"ray\.address: .* is no address"):
        check_address(address, token=True)


def test_address_without_a_listener_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing answers at"):
        check_address("[::1]:1", token=True)
