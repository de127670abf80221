"""Measured points of a sweep: one model on one collection at one level."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

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
    """Quality and cost of one setting on one collection.

    Attributes:
        collection: name of the collection.
        setting: the setting.
        report: its figures; values of a query are rounded to 6 decimals.
    """

    collection: str
    setting: Setting
    report: LevelReport

    def cost(self, name: str) -> float:
        """Return ``flops``, ``match_p50_ms`` or ``bytes``."""
        return float(getattr(self.report, name))

    def to_json(self) -> dict[str, Any]:
        """Return the fields of point and setting as one flat mapping."""
        return {"collection": self.collection, **asdict(self.setting), **_figures(self.report)}


def point_bytes(report: LevelReport) -> bytes:
    """Return the content of the file of a measured point; the names of model and collection are not in it."""
    return canonical_json(_figures(report))


def _figures(report: LevelReport) -> dict[str, Any]:
    rounded = {name: [round(float(value), _DECIMALS) for value in row] for name, row in report.by_query.items()}
    return {name: getattr(report, name) for name in _FIELDS} | {"by_query": rounded}


def read_point(data: bytes, place: str, collection: str, setting: Setting) -> Point:
    """Read the file of a measured point."""
    try:
        fields: Mapping[str, Any] = json.loads(data)
        figures = {name: fields[name] for name in _FIELDS}
        figures["by_query"] = {name: np.array(row) for name, row in fields["by_query"].items()}
        level = {name: getattr(setting, name) for name in ("qk", "dk", "threshold", "hybrid_weight")}
        return Point(collection, setting, LevelReport(**level, **figures))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{place} is damaged ({error!r}); delete it, then run again") from error
