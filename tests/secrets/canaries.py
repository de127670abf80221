"""Canaries: secrets that are recognized wherever they appear."""

import base64
import gzip
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

__all__ = ["canary", "environment", "leaks", "readable"]

_NAMES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_TOKEN",
    "COMET_API_KEY",
    "GITHUB_TOKEN",
    "GOOGLE_BEARER_TOKEN",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "NEPTUNE_API_TOKEN",
    "PGPASSWORD",
    "RAY_AUTH_TOKEN",
    "RAY_REDIS_PASSWORD",
    "WANDB_API_KEY",
)
_PROXIES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "https_proxy")


def canary(name: str) -> str:
    """Return a new secret; the name tells where one was found."""
    return f"Canary{name.replace('_', '')}{secrets.token_hex(12)}"


def environment() -> tuple[dict[str, str], dict[str, str]]:
    """Return variables with a secret each, and what to search for, by the name of the variable."""
    searched = {name: canary(name) for name in (*_NAMES, *_PROXIES)}
    # Nothing listens at port 9: a request through the proxy fails, and the error must not quote it.
    proxies = {name: f"http://user:{searched[name]}@127.0.0.1:9" for name in _PROXIES}
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    searched["LSR_PROD_SIGNING_KEY"] = base64.b64encode(key).decode()
    return {**searched, **proxies, "NO_PROXY": "127.0.0.1,localhost"}, searched


def leaks(texts: Iterable[tuple[str, bytes]], canaries: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return (name of the canary, where it was found) for all names and contents of texts."""
    wanted = {name: [value.encode(), base64.b64encode(value.encode())[:-4]] for name, value in canaries.items()}
    return {
        (name, where)
        for where, content in texts
        for name, forms in wanted.items()
        if any(form in content or form in where.encode() for form in forms)
    }


def readable(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of every file below a folder; compressed files are yielded decompressed, too."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        yield str(path), content
        if path.suffix == ".parquet":
            yield f"{path} (rows)", str(pq.read_table(path).to_pylist()).encode()
        elif path.suffix == ".gz":
            yield f"{path} (decompressed)", gzip.decompress(content)
