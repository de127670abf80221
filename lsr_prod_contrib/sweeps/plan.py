"""Plan of a sweep, made before any work: inputs are read and validated, every slice and point is named by digest."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lsr_prod.config import CollectionSettings, Deployment, SweepSettings
from lsr_prod.config.training import ValidationSettings
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.evaluation.measures import parse_measures
from lsr_prod.evaluation.validation import Collection, read_collection
from lsr_prod.evaluation.vector_evaluation import Level, LevelReport
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute, open_bundle
from lsr_prod.storage.formats.bundle_format import Bundle, EncoderCard
from lsr_prod.storage.formats.digests import canonical_json, digest_json
from lsr_prod_contrib.sweeps.vectors import VectorSlice, slices_of

_DECIMALS = 6
_FIELDS = ("measures", "by_query", "flops", "l0_query", "l0_document", "matched", "bytes", "match_p50_ms")
_FORMAT = 1  # raise it when equal inputs get another point


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Everything that a deployment can choose."""

    model: str  # name of the model
    qk: int  # heaviest terms kept per query; 0: all
    dk: int  # heaviest terms kept per document; 0: all
    threshold: float  # overlap threshold
    hybrid_weight: float | None  # weight of the words; None: no words

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


@dataclass(frozen=True, slots=True)
class SweepModel:
    """An opened model of a sweep."""

    name: str  # its name
    place: str  # path or URI of the bundle, absolute
    bundle: Bundle  # manifest of the bundle
    card: EncoderCard  # its encoder card


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """A point to measure."""

    name: str  # path of its file in the output folder
    collection: str  # name of the collection
    setting: Setting  # the setting

    @property
    def level(self) -> Level:
        """The level of the setting."""
        one = self.setting
        return Level(one.qk, one.dk, one.threshold, one.hybrid_weight)


@dataclass(frozen=True, slots=True)
class Group:
    """Points of one model, one collection and one ``dk``, which one task measures."""

    model: SweepModel  # the model
    collection: str  # name of the collection
    points: tuple[PlannedPoint, ...]  # the points


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Validated plan of a sweep."""

    settings: SweepSettings  # the section ``sweep``
    output: Store  # the output folder
    models: dict[str, SweepModel]  # the models by name
    collections: dict[str, Collection]  # the collections by name
    slices: dict[tuple[str, str], list[VectorSlice]]  # texts to encode, by model and collection
    groups: list[Group]  # points by model, collection and ``dk``

    @property
    def points(self) -> list[PlannedPoint]:
        """All points: collections vary slowest, then models, prunings, thresholds and hybrid weights."""
        by_key = {(point.collection, point.setting): point for group in self.groups for point in group.points}
        settings = self.settings
        return [
            by_key[collection, Setting(model, qk, dk, threshold, weight)]
            for collection in self.collections
            for model in self.models
            for qk, dk in settings.pairs
            for threshold in dict.fromkeys(settings.thresholds)
            for weight in settings.weights
        ]


def make_plan(deployment: Deployment) -> SweepPlan:
    """Validate every setting and read every input; nothing is written."""
    settings, options = deployment.sweep, deployment.storage.options
    assert settings is not None
    parse_measures("sweep.measures", settings.measures)
    output = Store(absolute(settings.output), options)
    models = {one.name: _open_model(one.name, one.bundle, settings, options) for one in settings.models}
    collections = {one.name: _read(one, settings.measures, options) for one in settings.collections}
    slices = {
        (model.name, name): slices_of(
            model.bundle.digest,
            model.card,
            list(collection.documents.values()),
            list(collection.queries.values()),
            settings.slice_documents,
        )
        for model in models.values()
        for name, collection in collections.items()
    }
    groups = [
        _group(model, name, digest, dk, settings)
        for name, digest in ((name, _digest(collection)) for name, collection in collections.items())
        for model in models.values()
        for dk in dict.fromkeys(dk for _, dk in settings.pairs)
    ]
    return SweepPlan(settings, output, models, collections, slices, groups)


def _group(model: SweepModel, collection: str, digest: str, dk: int, settings: SweepSettings) -> Group:
    points = []
    for qk in (qk for qk, other in settings.pairs if other == dk):
        for threshold in dict.fromkeys(settings.thresholds):
            for weight in settings.weights:
                key = [_FORMAT, model.bundle.digest, digest, qk, dk, threshold, weight, sorted(settings.measures)]
                setting = Setting(model.name, qk, dk, threshold, weight)
                points.append(PlannedPoint(f"points/{digest_json(key)}.json", collection, setting))
    return Group(model, collection, tuple(points))


def _digest(collection: Collection) -> str:
    qrels = [[one.query_id, one.doc_id, one.relevance] for one in collection.qrels]
    return digest_json([list(collection.documents.items()), list(collection.queries.items()), qrels])


def _open_model(name: str, place: str, settings: SweepSettings, options: dict[str, str]) -> SweepModel:
    """Open a bundle and compare the pruning with the number of terms that it returns."""
    folder, bundle = open_bundle(place, options)
    card = EncoderCard.load(folder)
    for field, values, most in (
        ("dk", [dk for _, dk in settings.pairs], bundle.top_k),
        ("qk", [qk for qk, _ in settings.pairs], _query_terms(bundle, card)),
    ):
        if most is not None and (largest := max(values)) > most:
            raise ConfigError(
                f"sweep.{'prunings' if settings.prunings else field}",
                f"{field} {largest} is more than the {most} terms that the bundle of {name} keeps per vector",
                f"give {most} or less, or 0 for all",
            )
    return SweepModel(name, absolute(place), bundle, card)


def _query_terms(bundle: Bundle, card: EncoderCard) -> int | None:
    """Return the maximum terms of a query's vector; None if queries have no model."""
    if card.inference_free:
        return None
    return bundle.top_k if bundle.query is None else bundle.query.top_k


def _read(one: CollectionSettings, measures: Sequence[str], options: dict[str, str]) -> Collection:
    settings = ValidationSettings(
        corpus=one.corpus,
        queries=one.queries,
        qrels=one.qrels,
        documents=one.documents,
        max_queries=one.max_queries,
        measures=list(measures),
    )
    try:
        return read_collection(settings, options)
    except ConfigError as error:
        field, prefix = error.field.removeprefix("validation."), f"sweep.collections.{one.name}"
        remedy = error.remedy.replace("validation.", f"{prefix}.")
        raise ConfigError(f"{prefix}.{field}", error.problem, remedy) from error
