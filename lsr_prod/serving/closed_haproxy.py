"""The actor that runs HAProxy on a node: that of Ray Serve, with a closed configuration."""

from typing import Any

from ray.serve._private import haproxy

from lsr_prod.serving.haproxy import closed_template, most_connections, place_files, write_lost_answer

__all__ = ["ClosedHAProxy"]

_Manager: Any = haproxy.HAProxyManager.__ray_metadata__.modified_class


class ClosedHAProxy(_Manager):  # type: ignore[misc]
    """HAProxy with one listener, which answers 503 where Ray's answers 500."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Write the configuration; the arguments are Ray's."""
        place_files(haproxy)
        haproxy.HAPROXY_CONFIG_TEMPLATE = closed_template(haproxy.HAPROXY_CONFIG_TEMPLATE)
        super().__init__(*arguments, **named)
        settings = self._haproxy.cfg
        settings.maxconn = min(settings.maxconn, most_connections())
        write_lost_answer(settings.error_file_path)
