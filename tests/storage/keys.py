"""Keys that sign publications."""

from base64 import b64encode

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2)]


def private(key: Ed25519PrivateKey) -> str:
    """The value of LSR_PROD_SIGNING_KEY."""
    return b64encode(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())).decode()


def public(key: Ed25519PrivateKey) -> str:
    """The value of LSR_PROD_TRUSTED_KEYS."""
    return b64encode(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()
