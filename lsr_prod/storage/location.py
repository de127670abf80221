"""Locations: a local path, or the URI of a folder of an object store; and the options of object stores.

The functions of this module decide for every setting, argument and ``Store`` whether a text is a path or a URI. A text
with the form of a URI is never a local path, so a scheme that is not supported is an error and no folder named
``s3a:``.

obstore and delta-rs read the same names of options, but differ in what they do with others: obstore panics, delta-rs
ignores them. So every option is known here, and each of the two libraries gets only what the store of a URI
understands.
"""

import difflib
import posixpath
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from lsr_prod.errors import ConfigError
from lsr_prod.logs import has_signature, without_credentials

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

# Kinds of values; a tuple lists the possible ones.
_FLAG, _DURATION, _COUNT, _URL, _TEXT = "flag", "duration", "count", "url", "text"
_Kind = str | tuple[str, ...]

_BY_KIND: dict[_Kind, str] = {
    _FLAG: """
        allow_http allow_invalid_certificates http1_only http2_only randomize_addresses
        aws_disable_bulk_delete aws_disable_tagging aws_imdsv1_fallback aws_request_payer aws_skip_signature
        aws_sse_bucket_key_enabled aws_unsigned_payload aws_virtual_hosted_style_request
        google_skip_signature
        azure_disable_tagging azure_skip_signature azure_storage_use_emulator azure_use_azure_cli
        azure_use_fabric_endpoint""",
    _DURATION: "connect_timeout pool_idle_timeout read_timeout timeout",
    _COUNT: "pool_max_idle_per_host",
    _URL: """
        proxy_url
        aws_container_credentials_full_uri aws_endpoint aws_metadata_endpoint
        google_base_url
        azure_endpoint azure_msi_endpoint""",
    _TEXT: """
        proxy_excludes user_agent
        aws_container_authorization_token_file aws_container_credentials_relative_uri aws_default_region aws_region
        aws_role_arn aws_role_session_name aws_sse_kms_key_id aws_web_identity_token_file
        google_application_credentials google_service_account
        azure_authority_host azure_client_id azure_federated_token_file azure_msi_resource_id azure_object_id
        azure_storage_account_name azure_tenant_id""",
    ("sha256",): "aws_checksum_algorithm",
    ("etag",): "aws_conditional_put",  # without it, two attempts could commit the same version of a table
    ("AES256", "aws:kms", "aws:kms:dsse"): "aws_server_side_encryption",
}
_CREDENTIALS = {
    "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_sse_customer_key_base64",
    "azure_client_secret", "azure_storage_account_key", "azure_storage_sas_key", "azure_storage_token",
    "google_bearer_token", "google_service_account_key",
}  # fmt: skip
# Names without a prefix that mean the option of whatever store a URI names.
_SHARED: dict[str, _Kind] = {"disable_tagging": _FLAG, "endpoint": _URL, "skip_signature": _FLAG}
_ENDPOINTS = ("endpoint", "aws_endpoint", "azure_endpoint", "google_base_url")
_PREFIXES = {"s3": "aws_", "gs": "google_", "az": "azure_", "abfss": "azure_"}

_SETTINGS: dict[str, _Kind] = {name: kind for kind, names in _BY_KIND.items() for name in names.split()}
_CLIENT = {name for name in _SETTINGS if not name.startswith(tuple(_PREFIXES.values()))}
_KINDS: dict[str, _Kind] = {**_SETTINGS, **_SHARED, **dict.fromkeys(_CREDENTIALS, _TEXT)}

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_TIME = re.compile(r"(\d+\s*(ns|us|ms|s|sec|secs|m|min|mins|h|hr|hours?)\s*)+")


def is_remote(uri: str) -> bool:
    """Return whether ``uri`` names an object store; everything else is a local path."""
    return uri.startswith(_REMOTE)


def location_problem(uri: str, *, pattern: bool = True) -> str | None:
    """Return why a text is neither a local path nor a supported URI, and what to do; None if it is one."""
    if not uri.strip():
        return "it is empty; give a path or a URI"
    if "\0" in uri:
        return "it contains a null character, which no path has; leave it out"
    if any("\ud800" <= character <= "\udfff" for character in uri):
        return "it is not valid UTF-8, which delta-rs and object stores require; use another name"
    if is_remote(uri):
        return _remote_problem(uri, pattern=pattern)
    if uri.startswith("~"):
        return "~ is not replaced by a home folder; write the whole path, or ./~ for a local name that begins with ~"
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
    if not {"", ".", ".."}.isdisjoint(name.rstrip("/").split("/") if name.rstrip("/") else []):
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


def normalize_options(options: Mapping[str, object]) -> dict[str, str]:
    """Return options under one name each, with checked values; a normalized mapping is returned unchanged.

    Names may have any case, and be written with or without the prefix of their service (``aws_allow_http``).
    """
    return dict(_normalized(tuple((str(name), str(value)) for name, value in options.items())))


def options_of(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the store of a URI understands, with the prefix of its service."""
    prefix = _PREFIXES[uri.partition("://")[0]]
    named = {f"{prefix}{name}" if name in _SHARED else name: value for name, value in options.items()}
    known = {name for name in _KINDS if name in _CLIENT or name.startswith(prefix)}
    return {name: value for name, value in named.items() if name in known}


def is_client_option(name: str) -> bool:
    """Return whether a normalized option is one of the HTTP client, which obstore takes separately."""
    return name in _CLIENT


def is_credential(name: str) -> bool:
    """Return whether an option holds a secret, or looks as if it did."""
    canonical = _canonical(name)
    secret = any(word in name.lower() for word in ("secret", "token", "password", "access_key", "account_key", "sas_"))
    return canonical in _CREDENTIALS or (canonical is None and secret)


@lru_cache(maxsize=256)
def _normalized(options: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for name, value in options:
        canonical = _canonical(name)
        if canonical is None:
            raise ConfigError(f"storage.options.{name}", "there is no such option", _suggest(name))
        checked = _checked(name, _KINDS[canonical], value)
        if found.get(canonical, checked) != checked:
            raise ConfigError(f"storage.options.{name}", f"it contradicts {canonical}", "give one of the two")
        found[canonical] = checked
    _check_plain_http(found)
    return tuple(sorted(found.items()))


def _check_plain_http(options: Mapping[str, str]) -> None:
    if options.get("allow_http") == "true":
        return
    for name in _ENDPOINTS:
        if options.get(name, "").startswith("http://"):
            problem = f"{name} is {options[name]}, but connections without TLS are not allowed"
            raise ConfigError("storage.options.allow_http", problem, "set it to true, or use an endpoint with https://")


def _canonical(name: str) -> str | None:
    """Return the one name of an option; None: it is unknown."""
    lower = name.lower()
    return lower if lower in _KINDS else _ALIASES.get(lower)


def _aliases() -> dict[str, str]:
    """Return further names: without the prefix of the service, and client options with one."""
    names: dict[str, str] = {}
    for canonical in sorted(_KINDS.keys() - _CLIENT - _SHARED.keys()):
        plain = re.sub("^(aws_|google_|azure_storage_|azure_)", "", canonical)
        names.setdefault(plain, canonical)
        if canonical.startswith("azure_"):
            names |= {f"azure_{plain}": canonical, f"azure_storage_{plain}": canonical}
    for name in sorted(_CLIENT):
        names |= {f"{prefix}{name}": name for prefix in ("aws_", "google_", "azure_", "azure_storage_")}
    for name in ("aws_endpoint_url", "endpoint_url", "aws_endpoint_url_s3"):
        names[name] = "aws_endpoint"
    names |= {"aws_token": "aws_session_token", "google_service_account_path": "google_service_account"}
    return names


_ALIASES = _aliases()


def _suggest(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), [*_KINDS, *_ALIASES], n=1, cutoff=0.6)
    close = [one for one in close if _canonical(one) not in _CREDENTIALS]
    return f"did you mean {close[0]}?" if close else "docs/object-stores.md lists the options"


def _checked(name: str, kind: _Kind, value: str) -> str:
    """Return a value in the form that both libraries read."""
    if kind == _FLAG:
        if value.lower() in (*_TRUE, *_FALSE):
            return "true" if value.lower() in _TRUE else "false"
        raise _wrong(name, value, "give true or false")
    if kind == _DURATION and not _TIME.fullmatch(value.strip()):
        raise _wrong(name, value, "give a number and a unit, such as 30s or 2m")
    if kind == _COUNT and not re.fullmatch("[0-9]+", value):
        raise _wrong(name, value, "give a whole number")
    if kind == _URL:
        _check_url(name, value)
    if isinstance(kind, tuple) and value not in kind:
        raise _wrong(name, value, f"give {' or '.join(kind)}, or leave it out")
    if not value.strip() or not value.isprintable():
        raise _wrong(name, value, "give text in one line, or leave the option out")
    return value


def _check_url(name: str, value: str) -> None:
    # Before the form of the URL is checked: the error about the form repeats the value.
    if "@" in value or has_signature(value):
        problem = "the URL contains credentials"
        raise ConfigError(f"storage.options.{name}", problem, "set them in the environment, not in the file")
    try:
        parts = urlsplit(value)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise _wrong(name, value, "give a URL such as https://storage.example.org or http://10.0.0.5:9000")


def _wrong(name: str, value: str, remedy: str) -> ConfigError:
    return ConfigError(f"storage.options.{name}", f"{without_credentials(value)[:80]!r} is not possible", remedy)
