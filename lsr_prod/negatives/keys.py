"""64-bit keys of texts and ids, to keep millions of them in memory."""

import hashlib


def normalized(text: str) -> str:
    """Return the text with every run of white space as one space; two texts are the same if these forms are equal."""
    return " ".join(text.split())


def text_key(text: str) -> int:
    """Return the 64-bit key of a text; equal for texts that differ in white space only."""
    return _key("text", normalized(text))


def id_key(doc_id: str) -> int:
    """Return the 64-bit key of a document id."""
    return _key("id", doc_id)


def pair_key(query: str, doc_id: str) -> int:
    """Return the 64-bit key of a pair of query and document."""
    return _key("pair", query, doc_id)


def _key(*parts: str) -> int:
    named = "".join(f"{len(part)}:{part}" for part in parts)  # length prefixes keep different part lists distinct
    return int.from_bytes(hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
