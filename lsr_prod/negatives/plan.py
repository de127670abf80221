"""Plan of a mining run, fixed before it starts: equal plans produce equal parts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsr_prod.config import Deployment, MineSettings
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.formats.digest import canonical_json, digest_json
from lsr_prod.negatives.index import MinedIndex
from lsr_prod.negatives.pairs import cut_pairs
from lsr_prod.negatives.teacher import cut_scores
from lsr_prod.storage import Store

__all__ = ["MANIFEST", "PLAN", "MinePlan", "check_output", "make_plan", "save_plan"]

PLAN, MANIFEST = "_plan.json", "_manifest.json"

# Settings that decide where and how fast the job runs, and do not change any row.
_ELSEWHERE = {"index", "output", "cache", "actors", "threads_per_actor", "slice_kilobytes"}
_ELSEWHERE_OF_DATA = {"paths", "format", "version", "max_bad_fraction"}


@dataclass(frozen=True, slots=True)
class MinePlan:
    """Validated plan of a mining run.

    Attributes:
        settings: the section ``mine``.
        output: the output folder.
        slices: slices of the pairs; the position of a slice is the number of its part.
        teacher: slices of the teacher's files; empty without a teacher.
        version: sha256 of the index version that is mined.
        documents: number of documents in that version.
    """

    settings: MineSettings
    output: Store
    slices: tuple[Slice, ...]
    teacher: tuple[Slice, ...]
    version: str
    documents: int

    def to_json(self) -> dict[str, Any]:
        """Return everything that decides the rows; its digest identifies the plan."""
        left_out: Any = {**dict.fromkeys(_ELSEWHERE, True), "data": _ELSEWHERE_OF_DATA, "teacher": {"paths"}}
        value = self.settings.model_dump(mode="json", exclude=left_out)
        return {
            "settings": value,
            "index_version": self.version,
            "slices": [_identity(piece) for piece in self.slices],
            "teacher": [_identity(piece) for piece in self.teacher],
        }

    @property
    def digest(self) -> str:
        """sha256 of the plan."""
        return digest_json(self.to_json())


def _identity(piece: Slice) -> list[Any]:
    return [piece.file.identity(), piece.start, piece.stop]


def make_plan(deployment: Deployment) -> MinePlan:
    """Validate every setting and input; nothing is written.

    Raises:
        ConfigError: a setting is wrong, or a path does not exist.
        MissingExtraError: ONNX Runtime is not installed.
        ArtifactError: the index is damaged.
    """
    settings, options = deployment.mine, deployment.storage.options
    assert settings is not None
    slices = cut_pairs(settings, options)
    teacher = cut_scores(settings.teacher, options) if settings.teacher else []
    index = MinedIndex(settings, options)
    index.warm()
    plan = MinePlan(
        settings, Store(settings.output, options), tuple(slices), tuple(teacher), index.version, index.documents
    )
    check_output(plan)
    return plan


def check_output(plan: MinePlan) -> Mapping[str, Any] | None:
    """Check that the output folder is empty or belongs to the plan.

    Returns:
        The manifest, if the plan is complete.

    Raises:
        ConfigError: the folder contains other files or the output of another plan.
    """
    store = plan.output
    found = store.get(PLAN)
    if found is None:
        if names := store.names():
            raise ConfigError("mine.output", f"{store.uri} holds {names[0]}", "give a folder that is empty or absent")
        return None
    if _read(store, PLAN, found).get("digest") != plan.digest:
        raise ConfigError(
            "mine.output",
            f"{store.uri} holds rows of other settings, data or another index version",
            "give another folder, or delete this one",
        )
    done = store.get(MANIFEST)
    return None if done is None else _read(store, MANIFEST, done)


def save_plan(plan: MinePlan) -> None:
    """Reserve the output folder for a plan.

    Raises:
        ConfigError: another plan has reserved it.
    """
    plan.output.put_new(PLAN, canonical_json({"digest": plan.digest, "plan": plan.to_json()}))
    check_output(plan)


def _read(store: Store, name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ArtifactError(f"{store.uri}/{name} is damaged ({error}); delete the folder, then run again") from error
    if not isinstance(value, dict):
        raise ArtifactError(f"{store.uri}/{name} is damaged; delete the folder, then run again")
    return value
