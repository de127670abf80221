"""The log of the library, and texts made safe for it: no credentials, no characters that control a terminal.

A record of ``log.info("shard built", extra={"fields": {"shard": sha, "documents": 10}})`` has the message
``shard built: shard=…, documents=10``, and the attributes ``event`` ("shard built") and ``fields``.

Everything that a job prints, and every value in a message of the log, goes through ``visible``, the one place that
says which characters may reach a terminal.
"""

import json
import logging
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

_LONGEST = 200  # characters of a value in the message; the field has all of it

_JOINERS = "\u200c\u200d"  # non-joiner and joiner: letters of Persian and Indic words, parts of emoji
_FIRST_JOINED = "\u0590"  # scripts before it are never joined
# Arabic, Syriac and Kaithi signs of the category "format" that are drawn.
_DRAWN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # of other categories, but never drawn
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_PLAIN = re.compile(r"[ -~]*")

# A user or a password may have an "@", and a secret key slashes; digits before a slash are a port, but not of a bucket.
# Lengths are bounded, since a search from each "//" of a long text would take a time that grows with its square.
_USER_END = r"[^@\s'\"]{0,256}@(?:[^/@\s'\"]{0,128}@)*"
_IN_A_URI = re.compile(
    rf"(?<=s3:)//[^/\s'\":]{{0,128}}:{_USER_END}|//[^/\s'\":]{{0,128}}:(?!\d{{1,5}}/){_USER_END}|//[^/@\s'\"]{{0,256}}@"
)
# Parameters of shared access signatures (Azure) and of signed URLs (S3, Google Cloud Storage).
_SIGNATURE = re.compile(
    r"([?&](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token))=)[^&\s'\"]+", re.IGNORECASE
)


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


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text with escapes such as ``\x1b`` for every character that a terminal could act on or would hide.

    These are control characters (C0, DEL, C1), line and paragraph separators, lone surrogates, and characters that are
    not drawn, among them those that change the direction of writing. Joiners stay where letters or emoji are joined.
    """
    if _PLAIN.fullmatch(text):
        return text
    before, shown = "", []
    for one in text:
        is_kept = _is_shown(one, before) or (lines and one == "\n")
        shown.append(one if is_kept else one.encode("unicode_escape").decode())
        before = one
    return "".join(shown)


def json_line(value: Any, *, default: Callable[[Any], Any] | None = None) -> str:
    """Return JSON in ASCII on one line, without control characters."""
    return json.dumps(_finite(value), allow_nan=False, default=default).replace("\x7f", "\\u007f")


def without_credentials(text: str) -> str:
    """Return a text with users, passwords and signatures removed from its URIs."""
    return _SIGNATURE.sub(r"\1...", _IN_A_URI.sub("//...@", text))


def has_signature(uri: str) -> bool:
    """Return whether a URI contains a signature, which gives access to everybody who reads it."""
    return _SIGNATURE.search(uri) is not None


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return visible(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _is_shown(one: str, before: str) -> bool:
    if one in _JOINERS:
        return before >= _FIRST_JOINED and unicodedata.category(before)[0] in "LMS"
    if one in _FILLERS:
        return False
    return unicodedata.category(one) not in _HIDDEN or one in _DRAWN


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
