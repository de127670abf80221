"""Signatures of publications by ed25519 keys, which the environment of a process holds.

``LSR_PROD_SIGNING_KEY`` is the private key of a process that publishes, ``LSR_PROD_TRUSTED_KEYS`` the public keys that
a process trusts. No key is a setting of a deployment: files of deployments are copied, logged and committed.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from lsr_prod.errors import ConfigError, MissingExtraError, SignatureError
from lsr_prod.storage.formats.index_format import Publication, Signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNING_KEY = "LSR_PROD_SIGNING_KEY"
"""Environment variable with the private key: PKCS #8 in DER, base64; the lines of a PEM file are accepted."""

TRUSTED_KEYS = "LSR_PROD_TRUSTED_KEYS"
"""Environment variable with public keys, separated by commas: SubjectPublicKeyInfo in DER, base64."""


def check_keys() -> None:
    """Check the keys in the environment of this process, before any work."""
    private, trusted = _private_key(), trusted_keys()
    if private is not None and trusted and _name(private.public_key()) not in trusted:
        problem = f"it is the key {_name(private.public_key())}, which {TRUSTED_KEYS} does not contain"
        raise ConfigError(SIGNING_KEY, problem, f"add its public key to {TRUSTED_KEYS} here and for readers")


def trust(keys: str | None) -> None:
    """Trust other keys than the environment of this process names."""
    if keys is not None:
        os.environ[TRUSTED_KEYS] = keys


def sign(publication: Publication) -> Publication:
    """Return the publication signed by the key of this process; unchanged if the process has none."""
    key = _private_key()
    if key is None:
        return publication
    value = b64encode(key.sign(publication.signed_bytes)).decode()
    return replace(publication, signature=Signature(_name(key.public_key()), value))


def trusted_keys() -> "Mapping[str, Ed25519PublicKey]":
    """Return the public keys that this process trusts, by name; none: signatures are not demanded."""
    text = _variable(TRUSTED_KEYS)
    return {} if text is None else _parse_trusted(text)


def is_signed(publication: Publication, keys: "Mapping[str, Ed25519PublicKey]") -> bool:
    """Return whether one of the keys signed the publication."""
    if publication.signature is None or publication.signature.key not in keys:
        return False
    from cryptography.exceptions import InvalidSignature

    try:
        signature = b64decode(publication.signature.value, validate=True)
        keys[publication.signature.key].verify(signature, publication.signed_bytes)
    except (InvalidSignature, ValueError) as error:
        raise SignatureError(
            f"the signature of publication {publication.number} by the key {publication.signature.key} is wrong; the "
            "publication was changed: find out who can write to the index, then publish a version again"
        ) from error
    return True


def _private_key() -> "Ed25519PrivateKey | None":
    text = _variable(SIGNING_KEY)
    return None if text is None else _parse_private(text)


def _variable(name: str) -> str | None:
    value = os.environ.get(name)
    if value is not None and not value.strip():
        raise ConfigError(name, "it is empty", "give keys, or unset it")
    return value


def _parse_private(text: str) -> "Ed25519PrivateKey":
    problem = ConfigError(
        SIGNING_KEY,
        "it is no ed25519 private key without a password",
        "create one with: openssl genpkey -algorithm ed25519 -outform DER | base64 -w0",
    )
    key: Ed25519PrivateKey = _load("private", text, problem)
    return key


@cache
def _parse_trusted(text: str) -> "Mapping[str, Ed25519PublicKey]":
    keys = {}
    for number, part in enumerate(text.split(","), 1):
        problem = ConfigError(
            TRUSTED_KEYS,
            f"key {number} of {text.count(',') + 1} is no ed25519 public key",
            "print the public key with: openssl pkey -in KEY -pubout -outform DER | base64 -w0",
        )
        key: Ed25519PublicKey = _load("public", part, problem)
        keys[_name(key)] = key
    return keys


def _load(kind: Literal["private", "public"], text: str, problem: ConfigError) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    except ImportError as error:
        raise MissingExtraError("cryptography", "signing") from error
    try:
        if kind == "private":
            key: Any = serialization.load_der_private_key(_der(text), None)
        else:
            key = serialization.load_der_public_key(_der(text))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise problem from None  # the cause could quote a key
    if not isinstance(key, Ed25519PrivateKey if kind == "private" else Ed25519PublicKey):
        raise problem
    return key


def _der(text: str) -> bytes:
    lines = (line.strip() for line in text.splitlines())
    return b64decode("".join(line for line in lines if not line.startswith("-----")), validate=True)


def _name(key: "Ed25519PublicKey") -> str:
    return sha256(key.public_bytes_raw()).hexdigest()[:16]
