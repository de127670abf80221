"""Credentials that stand where they should not, as in ``https://user:password@host``, are never repeated."""

import re

__all__ = ["without_credentials"]

_IN_A_URI = re.compile(r"//[^/@\s'\"]*@")


def without_credentials(text: str) -> str:
    """A text whose URIs name no user and no password."""
    return _IN_A_URI.sub("//...@", text)
