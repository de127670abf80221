"""Removal of credentials from texts that are logged or stored, as in ``https://user:password@host``."""

import re

_IN_A_URI = re.compile(r"//[^/@\s'\"]*@")
# Parameters of shared access signatures (Azure) and of signed URLs (S3, Google Cloud Storage).
_SIGNATURE = re.compile(
    r"([?&](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token))=)[^&\s'\"]+", re.IGNORECASE
)


def without_credentials(text: str) -> str:
    """Return a text with users, passwords and signatures removed from its URIs."""
    return _SIGNATURE.sub(r"\1...", _IN_A_URI.sub("//...@", text))


def has_signature(uri: str) -> bool:
    """Return whether a URI contains a signature, which gives access to everybody who reads it."""
    return _SIGNATURE.search(uri) is not None
