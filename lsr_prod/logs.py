"""The log of the library: every record has its facts in the message, and as fields for structured handlers.

A record of ``log.info("shard built", extra={"fields": {"shard": sha, "documents": 10}})`` has the message
``shard built: shard=…, documents=10``, and the attributes ``event`` ("shard built") and ``fields``.
"""

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

from lsr_prod.visible import visible

_LONGEST = 200  # characters of a value in the message; the field has all of it


class FactLog(logging.LoggerAdapter[logging.Logger]):
    """Logger that appends the fields of a record to its message."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message with the fields, and the keyword arguments with the event."""
        extra: Mapping[str, Any] = kwargs.get("extra") or {}
        facts = ", ".join(f"{name}={_short(value)}" for name, value in extra.get("fields", {}).items())
        return f"{msg}: {facts}" if facts else msg, {**kwargs, "extra": {**extra, "event": msg}}


def get_log(name: str) -> FactLog:
    """Return the log of a module; its records go to the logger of that name."""
    return FactLog(logging.getLogger(name), None)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return visible(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
