"""Names of unfinished files and folders, which readers ignore and garbage collection removes."""

import re
import uuid

_NAME = r"(^|/)\.([^/]+)\.[0-9a-f]{32}\.tmp"
_LAST, _ANY = re.compile(f"{_NAME}$"), re.compile(f"{_NAME}(?=/|$)")


def draft_name(name: str) -> str:
    """Return a new private name for an unfinished file or folder that will be called ``name``."""
    return f".{name}.{uuid.uuid4().hex}.tmp"


def is_draft(name: str) -> bool:
    """Return whether a name, with or without its folder, is that of a draft."""
    return _LAST.search(name) is not None


def final_name(path: str) -> str:
    """Return a path with the names that its drafts will get."""
    return _ANY.sub(r"\1\2", path)
