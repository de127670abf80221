"""Plan of a sweep, made before any work: inputs are read and validated, every slice and point is named by digest."""

from collections.abc import Sequence
from dataclasses import dataclass

from lsr_prod.config import CollectionSettings, Deployment, SweepSettings
from lsr_prod.config.train import ValidationSettings
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.measures import parse_measures
from lsr_prod.evaluation.sweeps.points import Setting
from lsr_prod.evaluation.sweeps.vectors import VectorSlice, slices_of
from lsr_prod.evaluation.validation import Collection, read_collection
from lsr_prod.evaluation.vector_evaluation import Level
from lsr_prod.formats.bundle import Bundle
from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.digest import digest_json
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute, open_bundle

_FORMAT = 1  # raise it when equal inputs get another point


@dataclass(frozen=True, slots=True)
class SweepModel:
    """An opened model of a sweep.

    Attributes:
        name: its name.
        place: path or URI of the bundle, absolute.
        bundle: manifest of the bundle.
        card: its encoder card.
    """

    name: str
    place: str
    bundle: Bundle
    card: EncoderCard


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """A point to measure.

    Attributes:
        name: path of its file in the output folder.
        collection: name of the collection.
        setting: the setting.
    """

    name: str
    collection: str
    setting: Setting

    @property
    def level(self) -> Level:
        """The level of the setting."""
        one = self.setting
        return Level(one.qk, one.dk, one.threshold, one.hybrid_weight)


@dataclass(frozen=True, slots=True)
class Group:
    """Points of one model, one collection and one ``dk``, which one task measures.

    Attributes:
        model: the model.
        collection: name of the collection.
        points: the points.
    """

    model: SweepModel
    collection: str
    points: tuple[PlannedPoint, ...]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Validated plan of a sweep.

    Attributes:
        settings: the section ``sweep``.
        output: the output folder.
        models: the models by name.
        collections: the collections by name.
        slices: texts to encode, by model and collection.
        groups: points by model, collection and ``dk``.
    """

    settings: SweepSettings
    output: Store
    models: dict[str, SweepModel]
    collections: dict[str, Collection]
    slices: dict[tuple[str, str], list[VectorSlice]]
    groups: list[Group]

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
