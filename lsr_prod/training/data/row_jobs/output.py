"""Output folder of a job that makes training rows: reserved for one plan, complete when its manifest exists."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.formats.digest import canonical_json
from lsr_prod.storage import Store

PLAN, MANIFEST = "_plan.json", "_manifest.json"


@dataclass(frozen=True, slots=True)
class RowOutput:
    """Output folder of one plan."""

    store: Store  # the folder
    digest: str  # sha256 of the plan
    field: str  # the setting that names the folder, for messages
    inputs: str  # what else than settings and data decides the rows, for messages

    def manifest(self) -> Mapping[str, Any] | None:
        """Check that the folder is empty or belongs to the plan, and return the manifest if the plan is complete."""
        found = self.store.get(PLAN)
        if found is None:
            if names := self.store.names():
                raise ConfigError(
                    self.field, f"{self.store.uri} holds {names[0]}", "give a folder that is empty or absent"
                )
            return None
        if self._read(PLAN, found).get("digest") != self.digest:
            raise ConfigError(
                self.field,
                f"{self.store.uri} holds rows of other settings, data or {self.inputs}",
                "give another folder, or delete this one",
            )
        done = self.store.get(MANIFEST)
        return None if done is None else self._read(MANIFEST, done)

    def reserve(self, plan: Mapping[str, Any]) -> None:
        """Reserve the folder."""
        self.store.put_new(PLAN, canonical_json({"digest": self.digest, "plan": plan}))
        self.manifest()

    def _read(self, name: str, data: bytes) -> dict[str, Any]:
        place = f"{self.store.uri}/{name}"
        try:
            value = json.loads(data)
        except ValueError as error:
            raise ArtifactError(f"{place} is damaged ({error}); delete the folder, then run again") from error
        if not isinstance(value, dict):
            raise ArtifactError(f"{place} is damaged; delete the folder, then run again")
        return value
