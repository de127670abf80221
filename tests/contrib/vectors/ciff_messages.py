"""CIFF by the protobuf library: an independent writer and reader, from the fields of the published definition."""

import io
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_INT32, _INT64, _DOUBLE, _STRING, _MESSAGE = 5, 3, 1, 9, 11
_FIELDS: dict[str, list[tuple[str, int]]] = {
    "Header": [
        ("version", _INT32),
        ("num_postings_lists", _INT32),
        ("num_docs", _INT32),
        ("total_postings_lists", _INT32),
        ("total_docs", _INT32),
        ("total_terms_in_collection", _INT64),
        ("average_doclength", _DOUBLE),
        ("description", _STRING),
    ],
    "Posting": [("docid", _INT32), ("tf", _INT32)],
    "PostingsList": [("term", _STRING), ("df", _INT64), ("cf", _INT64), ("postings", _MESSAGE)],
    "DocRecord": [("docid", _INT32), ("collection_docid", _STRING), ("doclength", _INT32)],
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="ciff.proto", package="ciff", syntax="proto3")
    for name, columns in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (column, kind) in enumerate(columns, start=1):
            field = message.field.add(name=column, number=number, type=kind, label=1)
            if kind == _MESSAGE:
                field.label, field.type_name = 3, ".ciff.Posting"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ciff.{name}")) for name in _FIELDS}


CLASSES = _classes()


def delimited(*messages: Any) -> bytes:
    out = b""
    for message in messages:
        data = message if isinstance(message, bytes) else message.SerializeToString(deterministic=True)
        length = len(data)
        while length > 0x7F:
            out += bytes([length & 0x7F | 0x80])
            length >>= 7
        out += bytes([length]) + data
    return out


def postings_list(term: str, postings: list[tuple[int, int]], **changes: Any) -> Any:
    """A list of (document, frequency), with gaps."""
    gaps = [number - before for (number, _), before in zip(postings, [0, *(n for n, _ in postings)], strict=False)]
    pairs = [{"docid": gap, "tf": tf} for gap, (_, tf) in zip(gaps, postings, strict=True)]
    values = {"term": term, "df": len(postings), "cf": sum(tf for _, tf in postings), "postings": pairs}
    return CLASSES["PostingsList"](**{**values, **changes})


def header(lists: int, docs: int, **changes: Any) -> Any:
    return CLASSES["Header"](**{"version": 1, "num_postings_lists": lists, "num_docs": docs, **changes})


def record(number: int, doc_id: str, length: int = 0) -> Any:
    return CLASSES["DocRecord"](docid=number, collection_docid=doc_id, doclength=length)


def parse(data: bytes) -> tuple[Any, list[Any], list[Any]]:
    """The header, the lists and the records of a file."""
    file = io.BytesIO(data)

    def message(name: str) -> Any:
        length = shift = 0
        while True:
            byte = file.read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return CLASSES[name].FromString(file.read(length))

    first = message("Header")
    lists = [message("PostingsList") for _ in range(first.num_postings_lists)]
    records = [message("DocRecord") for _ in range(first.num_docs)]
    assert file.read() == b""
    return first, lists, records
