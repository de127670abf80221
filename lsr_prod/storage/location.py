"""Locations: a local path, or the URI of a folder of an object store.

The functions of this module decide for every setting, argument and ``Store`` which of the two a text is. A text with
the form of a URI is never a local path, so a scheme that is not supported is an error and no folder named ``s3a:``.
"""

import posixpath
import re
from pathlib import Path

from lsr_prod.credentials import has_signature

SCHEMES = ("s3", "gs", "az", "abfss")
_REMOTE = tuple(f"{scheme}://" for scheme in SCHEMES)
_AZURE = ("az://", "abfss://")
_SUPPORTED = f"use a local path or {', '.join(_REMOTE[:-1])} or {_REMOTE[-1]}"

# `Path` makes s3:/b of s3://b, hence one slash. A local folder of this form is written ./folder:/name.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
# What delta-rs reads as another path, or stops at, in the path of a local table.
_NOT_OF_TABLES = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]^|\x00-\x1f]")
# Folders that a URI leaves which was made absolute like a path.
_SWALLOWED = re.compile(
    r"/(?:s3[an]?|gc?s|az|abfss?|wasbs?|adl|hdfs|viewfs|dbfs|https?|ftp|file|oss|hf):/", re.IGNORECASE
)


def is_remote(uri: str) -> bool:
    """Return whether ``uri`` names an object store; everything else is a local path."""
    return uri.startswith(_REMOTE)


def location_problem(uri: str, *, pattern: bool = True) -> str | None:
    """Return why a text is neither a local path nor a supported URI, and what to do; None if it is one."""
    if "\0" in uri:
        return "it contains a null character, which no path has; leave it out"
    if any("\ud800" <= character <= "\udfff" for character in uri):
        return "it is not valid UTF-8, which delta-rs and object stores require; use another name"
    if is_remote(uri):
        return _remote_problem(uri, pattern=pattern)
    match = _URI.match(uri)
    if match is not None and match[1].lower() == "file":
        return "file:// is not supported; give the path without file://"
    if match is not None and match[1].lower() in SCHEMES:
        return f"it is not written as a URI of an object store; start it with {match[1].lower()}://"
    if match is not None:
        return f"{match[1]}:// is not supported; {_SUPPORTED}"
    if "://" in uri or _SWALLOWED.search(uri):
        return f"it is a path that contains a URI; {_SUPPORTED}"
    return None


def table_problem(uri: str) -> str | None:
    """Return why there can be no table at a location, and what to do; None if there can be one."""
    if (problem := location_problem(uri, pattern=False)) is not None or is_remote(uri):
        return problem
    path = str(Path(uri).absolute())
    if (found := _NOT_OF_TABLES.search(path)) is not None:
        return f"delta-rs does not open a table at {path}, because of {found[0]!r}; use a folder of another name"
    return None


def path_problem(path: str) -> str | None:
    """Return why a text is no local path, and what to do; None if it is one."""
    if is_remote(path):
        return "it is on an object store, but is read or written as a local file; give a local path"
    return location_problem(path)


def same_location(one: str, other: str) -> bool:
    """Return whether two locations name the same folder.

    Local ones are compared as files, so links, ``..`` and relative paths are resolved; remote ones without redundant
    slashes and without the Azure account, which only one of two forms of a URI names.
    """
    if is_remote(one) != is_remote(other):
        return False
    if is_remote(one):
        return _plain(one) == _plain(other)
    try:
        return Path(one).samefile(other)
    except OSError:  # one of them does not exist on this machine
        return Path(one).resolve() == Path(other).resolve()


def _remote_problem(uri: str, *, pattern: bool) -> str | None:
    scheme, _, rest = uri.partition("://")
    bucket, _, name = rest.partition("/")
    user, at, _ = bucket.partition("@")
    if ":" in user or (at and scheme != "abfss") or has_signature(rest):
        return "it contains credentials; set them in the environment"
    if not bucket:
        return f"it names no bucket; write {scheme}://bucket/folder"
    segments = name.rstrip("/").split("/") if name.rstrip("/") else []
    if not {"", ".", ".."}.isdisjoint(segments):
        return "a part of its path is empty, '.' or '..'; write the path without it"
    for character in "#" if pattern else "#?%":
        if character in rest:
            return f"it contains {character!r}, which is syntax of a URL; use another name"
    return None


def _plain(uri: str) -> tuple[str, str, str]:
    """Return service, bucket or container, and normalized path."""
    scheme, _, rest = uri.partition("://")
    bucket, _, name = rest.partition("/")
    if uri.startswith(_AZURE):
        scheme, bucket = "az", bucket.partition("@")[0]
    return scheme, bucket, posixpath.normpath(f"/{name}").lstrip("/")
