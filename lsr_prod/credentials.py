"""Removal of credentials from texts that are logged or stored, as in ``https://user:password@host``."""

import re

__all__ = ["without_credentials"]

_IN_A_URI = re.compile(r"//[^/@\s'\"]*@")


def without_credentials(text: str) -> str:
    """Return a text with user and password removed from its URIs."""
    return _IN_A_URI.sub("//...@", text)
