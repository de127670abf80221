"""Measured points of a sweep: one model on one collection at one level."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsr_prod.errors import ArtifactError
from lsr_prod.evaluation.vector_evaluation import LevelReport
from lsr_prod.formats.digest import canonical_json

_DECIMALS = 6
_FIELDS = ("measures", "by_query", "flops", "l0_query", "l0_document", "matched", "bytes", "match_p50_ms")


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Everything that a deployment can choose.

    Attributes:
        model: name of the model.
        qk: heaviest terms kept per query; 0: all.
        dk: heaviest terms kept per document; 0: all.
        threshold: overlap threshold.
        hybrid_weight: weight of the words; None: no words.
    """

    model: str
    qk: int
    dk: int
    threshold: float
    hybrid_weight: float | None

    def __str__(self) -> str:
        """Return the setting in words."""
        terms = [f"{name} {value or 'all'}" for name, value in (("qk", self.qk), ("dk", self.dk))]
        words = "no words" if self.hybrid_weight is None else f"words {self.hybrid_weight:g}"
        return f"{self.model} with {', '.join(terms)}, threshold {self.threshold:g}, {words}"


@dataclass(frozen=True, slots=True)
class Point:
    """Quality and cost of one setting on one collection; the fields are those of ``LevelReport``.

    Attributes:
        collection: name of the collection.
        setting: the setting.
        measures: name of the measure -> mean over the queries.
        by_query: name of the measure -> value of every query, in the order of the collection's queries.
        flops: papers/esplade-pretraining, eq. 1.
        l0_query: mean number of terms per query.
        l0_document: mean number of terms per document.
        matched: mean number of matched documents per query.
        bytes: size of the postings.
        match_p50_ms: milliseconds of matching, median over the queries.
    """

    collection: str
    setting: Setting
    measures: dict[str, float]
    by_query: dict[str, list[float]]
    flops: float
    l0_query: float
    l0_document: float
    matched: float
    bytes: int
    match_p50_ms: float

    def cost(self, name: str) -> float:
        """Return ``flops``, ``match_p50_ms`` or ``bytes``."""
        return float(getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """Return the fields of point and setting as one flat mapping."""
        setting = self.setting
        return {
            "collection": self.collection,
            "model": setting.model,
            "qk": setting.qk,
            "dk": setting.dk,
            "threshold": setting.threshold,
            "hybrid_weight": setting.hybrid_weight,
            **{name: getattr(self, name) for name in _FIELDS},
        }


def point_bytes(report: LevelReport) -> bytes:
    """Return the content of the file of a measured point; the names of model and collection are not in it."""
    by_query = {name: [round(float(value), _DECIMALS) for value in row] for name, row in report.by_query.items()}
    fields = {name: getattr(report, name) for name in _FIELDS} | {"by_query": by_query}
    return canonical_json(fields)


def read_point(data: bytes, place: str, collection: str, setting: Setting) -> Point:
    """Read the file of a measured point."""
    try:
        fields: Mapping[str, Any] = json.loads(data)
        return Point(collection, setting, **{name: fields[name] for name in _FIELDS})
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{place} is damaged ({error!r}); delete it, then run again") from error
