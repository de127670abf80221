"""Counts of an encode run: summed wave by wave, reported at its end."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lsr_prod.encoding.busy import BusyTime
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.results import WaveCosts, WaveResult
from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import QuarantineOverflowError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.inference import Counters
from lsr_prod.storage.counts import StoreCounts
from lsr_prod.tables import Table
from lsr_prod.tables.file_table import total, total_live_rows
from lsr_prod.tables.quarantine import quarantined_by_reason

TOTALS_FOLDER = f"{PROTOCOL_FOLDER}/totals"


@dataclass(frozen=True, slots=True)
class EncodeSummary:
    """Result of an encode run. Row counts of a first plan cover all its runs, those of an increment this run.

    Attributes:
        documents: rows of the table.
        rows_in: rows of the source.
        rows_out: rows of the source that are documents of the table.
        quarantined: bad rows.
        quarantined_by_reason: bad rows by reason.
        unread_bytes: bytes of the source that do not decode, by all runs of the plan; the rows in them are not counted.
        unread_share: their share of the source bytes that the plan reads.
        encoded: documents that went through the model in this run.
        unchanged: documents that kept their vector.
        deleted: documents that were deleted from the table.
        clipped: weights above the largest impact, of the waves of this run.
        clipped_share: share of the weights of the documents that these waves encoded.
        max_clipped_share: ``gates.max_clipped_share``; the run warns above it.
        reused_cells: cells that an earlier attempt had finished.
        tokens: tokens that the model read in this run, padding excluded.
        padding_share: share of padding in the batches of this run.
        cut_documents: documents with text beyond their last passage.
        waves: waves of the plan.
        waves_skipped: waves that were committed before this run.
        actors: encoder actors.
        threads_per_actor: ONNX Runtime threads of each.
        seconds: duration of this run.
        encode_seconds: time from the start of the first to the end of the last block of this run.
        busy_share: share of that time in which the models of the encoders ran.
        source_bytes: bytes that the plan reads.
        table_bytes: bytes of the parts of the table.
        requests: requests to stores of the driver and the encoders in this run, those of delta-rs excluded.
        bytes_read: bytes that they read; those of the source are read by other tasks and not included.
        bytes_written: bytes that they wrote.
        docs_per_s: encoded documents per second of this run.
        impact_step: weight of one impact unit.
        impact_error: mean error of the impacts of the probe.
        table: URI of the sparse table.
        quarantine: URI of the quarantine table.
        plan: digest of the plan.
        base_plan: digest of the previous plan.
        bundle_digest: of the encoder.
        table_version: newest version of the table.
        table_digest: digest of the contents of that version; None if rows of its parts are deleted, since they would
            have to be read (``encoding.table_digest``, ``lsr-prod table status --digest``).
    """

    documents: int
    rows_in: int
    rows_out: int
    quarantined: int
    quarantined_by_reason: Mapping[str, int]
    unread_bytes: int
    unread_share: float
    encoded: int
    unchanged: int
    deleted: int
    clipped: int
    clipped_share: float
    max_clipped_share: float | None
    reused_cells: int
    tokens: int
    padding_share: float
    cut_documents: int
    waves: int
    waves_skipped: int
    actors: int
    threads_per_actor: int
    seconds: float
    encode_seconds: float
    busy_share: float
    source_bytes: int
    table_bytes: int
    requests: int
    bytes_read: int
    bytes_written: int
    docs_per_s: float
    impact_step: float
    impact_error: float
    table: str
    quarantine: str
    plan: str
    base_plan: str | None
    bundle_digest: str
    table_version: int
    table_digest: str | None

    def result(self) -> dict[str, Any]:
        """Return the fields by name, for the ``RESULT`` line."""
        return asdict(self)


@dataclass(slots=True)
class Totals:
    """Running counts of a plan; ``EncodeSummary`` describes the fields.

    Attributes:
        rows_out: rows of the source that are documents of the table.
        reasons: quarantined rows by reason.
        unread_bytes: bytes of the source that do not decode.
        encoded: documents that went through the model in this run.
        unchanged: documents that kept their vector.
        deleted: documents that were deleted from the table.
        clipped: weights above the largest impact.
        weights: weights of the encoded documents of the same waves.
        reused_cells: cells that an earlier attempt had finished.
        counters: documents and tokens that the model read in this run.
        busy: working time of the encoders in this run.
        io: requests and bytes of the encoders in this run.
    """

    rows_out: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    unread_bytes: int = 0
    encoded: int = 0
    unchanged: int = 0
    deleted: int = 0
    clipped: int = 0
    weights: int = 0
    reused_cells: int = 0
    counters: Counters = field(default_factory=Counters)
    busy: BusyTime = field(default_factory=BusyTime)
    io: StoreCounts = field(default_factory=StoreCounts)

    @classmethod
    def before(cls, work: Work, table: Table, waves: int) -> "Totals":
        """Return the counts of the waves that earlier runs of the plan committed."""
        plan = work.plan
        saved = work.table.get(_saved_totals(plan.digest)) if waves >= plan.waves else None
        if saved is not None:
            values = json.loads(saved)
            # Earlier releases saved no unread bytes.
            reasons, unread = Counter(values["reasons"]), values.get("unread_bytes", 0)
        else:
            # Cell 0, which is in wave 0 of an increment, has all rows with unread bytes.
            counted = waves if plan.base is None else min(waves, 1)
            reasons, unread = quarantined_by_reason(work.quarantine, plan.digest, counted)
        if plan.base is not None:
            return cls(unread_bytes=unread)
        return cls(document_count(table), reasons, unread)

    def save(self, work: Work) -> None:
        """Write the quarantined rows of a finished plan next to its table: a later run need not count them."""
        values = {"reasons": dict(self.reasons), "unread_bytes": self.unread_bytes}
        work.table.put_new(_saved_totals(work.plan.digest), record_bytes(values))

    @property
    def quarantined(self) -> int:
        """Quarantined rows."""
        return self.reasons.total()

    def add_costs(self, costs: WaveCosts) -> None:
        """Add the work spent on a wave, committed or not."""
        self.encoded += costs.encoded
        self.reused_cells += costs.reused_cells
        self.counters += costs.counters
        self.busy += costs.busy
        self.io += costs.io

    def add(self, result: WaveResult) -> None:
        """Add a committed wave."""
        written = result.rows_out
        self.rows_out += written - result.displaced
        self.reasons.update(result.reasons)
        self.unread_bytes += result.unread_bytes
        self.clipped += result.clipped
        self.weights += result.weights
        self.deleted += result.deleted
        self.unchanged += written - result.encoded

    def check_overflow(self, work: Work, result: WaveResult) -> None:
        """Refuse a wave that brings the bad share above the limit, before it is committed.

        The bad share is u + (1 - u) * r: u is the share of source bytes that were not read, r the share of bad rows
        among the rows that were.
        """
        reasons = self.reasons + result.reasons
        bad, rows = reasons.total(), reasons.total() + self.rows_out + result.rows_out
        unread, source_bytes = self.unread_bytes + result.unread_bytes, work.plan.bytes_through(result.wave)
        few = work.plan.base is not None and rows < work.encode.bad_fraction_min_rows and not unread
        unread_share = unread / max(source_bytes, 1)
        if few or unread_share + (1 - unread_share) * bad / max(rows, 1) <= work.encode.max_bad_fraction:
            return
        source = work.source
        named = {"missing_id": f"missing_id: {source.column(source.id_field)}"}
        top = ", ".join(f"{named.get(reason, reason)} {count}" for reason, count in reasons.most_common(3))
        lost = f", and {unread} of {source_bytes} bytes were not read" if unread else ""
        raise QuarantineOverflowError(
            f"{bad} of {rows} rows are bad ({top}){lost}, more than encode.max_bad_fraction = "
            f"{work.encode.max_bad_fraction}; wave {result.wave} was not committed; see the rows with: "
            f"lsr-prod table quarantine {shlex.quote(work.quarantine.uri)} --plan {work.plan.digest[:12]} --wave "
            f"{result.wave}; then raise the fraction, or fix the source and run again (with "
            "--abandon if waves of this plan are committed)"
        )


def _saved_totals(plan: str) -> str:
    return f"{TOTALS_FOLDER}/{plan}.json"


def document_count(table: Table) -> int:
    """Return the number of rows of a snapshot that are not deleted."""
    return total_live_rows(table.file_table())


def table_bytes(table: Table) -> int:
    """Return the bytes of the parts of a snapshot."""
    return total(table.file_table(), "size")
