"""Options of object stores: their names, aliases and types, validated before any request.

obstore and delta-rs read the same names, but differ in what they do with others: obstore panics, delta-rs ignores them.
So every option is known here, and each of the two libraries gets only what the store of a URI understands.
"""

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from lsr_prod.credentials import has_signature, without_credentials
from lsr_prod.errors import ConfigError

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
