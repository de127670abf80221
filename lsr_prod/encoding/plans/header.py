"""The header of a plan: its settings and the digests of its lists; the part of a plan that its digest names."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PLAN_FORMAT = 3

ROW_SETTINGS = frozenset(
    {"store_k", "max_length", "passage_stride", "max_passages", "impact_bits", "impact_step", "buckets",
     "on_duplicate"},
)  # fmt: skip
"""Settings of ``encode`` that decide the rows: part of the digest, and the same for every plan of a table."""

PLAN_SETTINGS = frozenset({"wave_megabytes", "slice_megabytes", "cell_megabytes", "probe_documents"})
"""Settings that decide the contents of a commit, or the impact scale of the first plan: part of one plan's digest."""

RUN_SETTINGS = frozenset(
    {
        "bundle",
        "table",
        "quarantine",
        "batch_tokens",
        "actors",
        "min_actors",
        "max_actors",
        "node_wait_seconds",
        "actor_memory_megabytes",
        "labels",
        "threads_per_actor",
        "provider",
        "batch_timeout_s",
        "document_timeout_s",
        "max_bad_fraction",
        "bad_fraction_min_rows",
    }
)
"""Settings that an attempt may change: not part of the digest. The bundle enters it by its own digest."""


@dataclass(frozen=True, slots=True)
class ListDigest:
    """Number of entries of a list, and the sha256 (hex) over them."""

    count: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """Settings and file lists that determine the rows of the table; its JSON form has the digest of the plan.

    Attributes:
        base: digest of the previous plan; None: the first plan of its table.
        bundle_digest: of the encoder.
        files: of the corpus and of the removed files.
        slices: that the waves read.
        waves: number of commits; wave ``w`` is commit ``w``.
        cells: number of cells that ids are hashed to, a multiple of the buckets.
        source: settings of the section ``source``, by name.
        encode: settings of the section ``encode``, by name.
        base_waves: committed waves of a previous plan that is not finished and never will be; None: it is finished.
    """

    base: str | None
    bundle_digest: str
    files: ListDigest
    slices: ListDigest
    waves: int
    cells: int
    source: Mapping[str, Any]
    encode: Mapping[str, Any]
    base_waves: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the header as it is stored."""
        return {
            "format": PLAN_FORMAT,
            "base": self.base,
            "bundle": self.bundle_digest,
            "files": asdict(self.files),
            "slices": asdict(self.slices),
            "waves": self.waves,
            "cells": self.cells,
            "source": dict(self.source),
            "encode": dict(self.encode),
            **({} if self.base_waves is None else {"base_waves": self.base_waves}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PlanHeader":
        """Read the output of ``to_json``."""
        return cls(
            base=document["base"],
            bundle_digest=document["bundle"],
            files=ListDigest(**document["files"]),
            slices=ListDigest(**document["slices"]),
            waves=document["waves"],
            cells=document["cells"],
            source=document["source"],
            encode=document["encode"],
            base_waves=document.get("base_waves"),
        )
