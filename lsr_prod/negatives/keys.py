"""Names in 64 bits: texts and ids by the million in a few bytes each."""

import hashlib

__all__ = ["id_key", "normalised", "pair_key", "text_key"]


def normalised(text: str) -> str:
    """The text with every run of white space as one space: what is equal so is the same text."""
    return " ".join(text.split())


def text_key(text: str) -> int:
    """64 bits that name a text; equal for texts that differ in white space only."""
    return _key("text", normalised(text))


def id_key(doc_id: str) -> int:
    """64 bits that name a document."""
    return _key("id", doc_id)


def pair_key(query: str, doc_id: str) -> int:
    """64 bits that name a query and a document together."""
    return _key("pair", query, doc_id)


def _key(*parts: str) -> int:
    named = "".join(f"{len(part)}:{part}" for part in parts)  # no two lists of parts are written the same
    return int.from_bytes(hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
