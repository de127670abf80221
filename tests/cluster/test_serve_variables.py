"""Variables of Ray Serve: defaults for throughput, and what the environment says."""

import pytest

from lsr_prod.cluster import address
from lsr_prod.cluster.address import HAPROXY, check_serve_variables, set_serve_variables
from lsr_prod.errors import ConfigError

GRPC, CALLBACK = "RAY_SERVE_USE_GRPC_BY_DEFAULT", "RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH"


def test_throughput_options_are_the_default() -> None:
    environment: dict[str, str] = {}
    set_serve_variables(environment)
    assert (environment[HAPROXY], environment["RAY_SERVE_THROUGHPUT_OPTIMIZED"], environment[GRPC]) == ("1", "1", "0")
    check_serve_variables(environment)


def test_variables_of_the_environment_win() -> None:
    given = {HAPROXY: "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0", "RAY_SERVE_HAPROXY_NBTHREAD": "3"}
    environment = dict(given)
    set_serve_variables(environment)
    assert given.items() <= environment.items()


def test_without_haproxy_a_proxy_in_python_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(address.shutil, "which", lambda _: None)
    environment: dict[str, str] = {}
    set_serve_variables(environment)
    assert environment[HAPROXY] == "0"
    environment = {"RAY_SERVE_HAPROXY_BINARY_PATH": "/opt/haproxy"}
    set_serve_variables(environment)
    assert environment[HAPROXY] == "1"


def test_open_ports_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"RAY_SERVE_USE_GRPC_BY_DEFAULT: .*pickles; unset it"):
        check_serve_variables({GRPC: "1"})
    with pytest.raises(ConfigError, match=f"{CALLBACK}: .*all interfaces; unset it, or set {HAPROXY}=0"):
        check_serve_variables({CALLBACK: "mine.callback"})
    check_serve_variables({CALLBACK: "mine.callback", HAPROXY: "0"})
