"""Collections of ir_datasets as inputs of our jobs (``pip install 'lsr_prod[ir-datasets]'``)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lsr_prod import errors, extras
from lsr_prod.search.query.filters import shorten
from lsr_prod.storage.drafts import Draft, new_file

try:
    import ir_datasets
except ModuleNotFoundError as error:
    raise extras.missing_extra(error) from error

__all__ = ["write_dataset"]


def write_dataset(dataset: Any, folder: str | Path, *, fields: Sequence[str] = ()) -> dict[str, int]:
    """Write what a dataset has of ``corpus.jsonl``, ``queries.jsonl`` and ``qrels.jsonl`` to a new folder.

    The default settings of ``source`` and ``evaluate`` read these files. ir_datasets downloads what it needs.

    Args:
        dataset: id such as ``beir/scifact/test``, or a dataset object.
        folder: name of the new folder.
        fields: fields of a document that are written too, in the object ``meta``; ``text`` is always the text that
            ir_datasets makes of all fields.

    Returns:
        Number of rows by name of the file.

    Raises:
        ConfigError: the dataset is unknown or has none of these, the folder has content, or a field cannot be written.
        SourceError: a file of the dataset cannot be downloaded or read.
    """
    if isinstance(dataset, str):
        try:
            dataset = ir_datasets.load(dataset)
        except KeyError as error:
            known = "choose one of https://ir-datasets.com, or register it first"
            raise errors.ConfigError("dataset", f"{shorten(dataset)} is unknown", known) from error
    parts = {"corpus.jsonl": _documents, "queries.jsonl": _queries, "qrels.jsonl": _judgments}
    has = dict(zip(parts, (dataset.has_docs(), dataset.has_queries(), dataset.has_qrels()), strict=True))
    if not any(has.values()):
        raise errors.ConfigError("dataset", "it has neither documents nor queries nor judgments", "choose another one")
    written = {}
    with Draft(Path(folder)) as draft:
        for name in (name for name in parts if has[name]):
            with new_file(draft.folder / name) as file:
                written[name] = sum(file.write(line) > 0 for line in _lines(parts[name](dataset, fields), name))
        if not draft.seal():
            raise errors.ConfigError("folder", f"{draft.target} has content", "name a folder that does not exist")
    return written


def _documents(dataset: Any, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    for row in dataset.docs_iter():
        meta = {"meta": {name: _value(row, name) for name in fields}} if fields else {}
        yield {"_id": row.doc_id, "text": _value(row, "default_text")(), **meta}


def _queries(dataset: Any, _: Sequence[str]) -> Iterator[dict[str, Any]]:
    return ({"_id": row.query_id, "text": _value(row, "default_text")()} for row in dataset.queries_iter())


def _judgments(dataset: Any, _: Sequence[str]) -> Iterator[dict[str, Any]]:
    return ({name: _value(row, name) for name in ("query_id", "doc_id", "relevance")} for row in dataset.qrels_iter())


def _value(row: Any, name: str) -> Any:
    if not hasattr(row, name):
        raise errors.ConfigError("fields", f"a row has no {name}, only {', '.join(row._fields)}", "choose other fields")
    return getattr(row, name)


def _lines(rows: Iterator[Mapping[str, Any]], name: str) -> Iterator[bytes]:
    """Yield rows as JSON lines; ir_datasets downloads and parses its files while it yields rows."""
    try:
        for row in rows:
            yield json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    except TypeError as error:
        raise errors.ConfigError("fields", f"a value of {name} is no JSON ({error})", "choose other fields") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise errors.SourceError(f"ir_datasets cannot read the rows of {name} ({error}); repair the dataset") from error
