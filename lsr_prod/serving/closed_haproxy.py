"""The actor that runs HAProxy on a node: that of Ray Serve, with a closed configuration."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.serve._private import controller, haproxy
from ray.serve._private.proxy_state import ProxyStateManager

from lsr_prod.serving.haproxy import (
    check_haproxy,
    closed_template,
    haproxy_folder,
    most_connections,
    place_files,
    write_lost_answer,
)

_HEADERS_S = 30  # for the headers of a request: a client that sends nothing holds no connection
_haproxy: Any = haproxy
_controller: Any = controller
_Manager: Any = _haproxy.HAProxyManager.__ray_metadata__.modified_class


class ClosedHAProxy(_Manager):  # type: ignore[misc]
    """HAProxy with one listener, which answers 503 where Ray's answers 500."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Write the configuration; the arguments are Ray's."""
        place_files(haproxy)
        _haproxy.HAPROXY_CONFIG_TEMPLATE = closed_template(_haproxy.HAPROXY_CONFIG_TEMPLATE)
        super().__init__(*arguments, **named)
        settings = self._haproxy.cfg
        settings.maxconn = min(settings.maxconn, most_connections())
        settings.timeout_http_request_s = _HEADERS_S
        write_lost_answer(settings.error_file_path)

    async def shutdown(self) -> None:
        """Stop HAProxy and remove its files."""
        await super().shutdown()
        folder = Path(self._haproxy.cfg.socket_path).parent
        if folder.parent == haproxy_folder():  # not if a variable names another one
            shutil.rmtree(folder, ignore_errors=True)

    def _target_to_server(self, target: Any) -> Any:
        """Return where a router answers: on the address of its node, also on the node of HAProxy."""
        return replace(super()._target_to_server(target), host=target.ip)


def use_closed_haproxy() -> None:
    """Let the controller of Serve start ``ClosedHAProxy``; Serve calls this in the controller.

    No fallback proxy is started: it is a proxy in Python that waits for a router while there is none, and HAProxy
    answers at once instead.
    """
    check_haproxy()
    _controller.HAProxyManager = ray.remote(num_cpus=0)(ClosedHAProxy)
    ProxyStateManager._start_fallback_proxy_if_needed = lambda *_, **__: None  # type: ignore[method-assign]
