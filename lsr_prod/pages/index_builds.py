"""The page of the builds of an index: shards, bytes, seconds and gates."""

from collections.abc import Mapping
from typing import Any

from lsr_prod.pages.charts import bars, series
from lsr_prod.pages.numbers import show_bytes
from lsr_prod.pages.page import Chart, Page
from lsr_prod.pages.sections import Section, Table, curves, moment, sections_page

_BUILD_COLUMNS = {
    "finished_at": "finished (UTC)", "mode": "mode", "reason": "why all shards", "documents": "documents",
    "upserts": "upserts", "deletes": "deletes", "documents_rebuilt": "documents built", "shards": "shards",
    "shards_reused": "reused", "bytes_written": "bytes written", "seconds": "seconds", "publication": "publication",
    "version": "version",
}  # fmt: skip
_SHARD_COLUMNS = {
    "name": "shard", "role": "role", "documents": "documents", "postings": "postings", "bytes": "bytes",
    "reused": "reused", "seconds_impacts": "postings (s)", "seconds_tantivy": "Tantivy (s)",
}  # fmt: skip
_GATE_COLUMNS = {
    "gate": "gate", "verdict": "verdict", "measured": "measured", "limit": "limit", "finding": "finding",
}  # fmt: skip
_SHARDS = 60  # of a chart


def builds_page(data: Mapping[str, Any]) -> Page:
    """Return the page of ``operations.runs.building.describe_builds``."""
    charts: dict[str, Chart] = {}
    last = data["builds"][-1]
    facts = {
        "mode": last["mode"],
        "documents": last["documents"],
        "shards": last["shards"],
        "documents built": last["documents_rebuilt"],
        "bytes written": show_bytes(last["bytes_written"]),
        "bytes per document": last["bytes_per_doc"],
        "seconds": last["seconds"],
        "publication": last["publication"] or "not published",
    }
    sections = [
        Section("summary", "Last build", [f"Index: {data['index']}.", f"Version: {last['version']}."], facts),
        _shards(data, charts),
        _gates(data),
        _history(data, charts),
    ]
    return sections_page("index-run", "Index run", sections, charts, data)


def _shards(data: Mapping[str, Any], charts: dict[str, Chart]) -> Section:
    rows = [
        {**shard, "name": shard["sha"][:12], "reused": "yes" if shard["reused"] else "no"} for shard in data["shards"]
    ]
    if not rows:
        return Section("shards", "Shards", ["This build planned no shard: it published a version that was there."])
    built = [row for row in rows if row["reused"] == "no"][:_SHARDS]
    drawn = []
    if built:
        parts = {"seconds_impacts": "document order and arrays", "seconds_tantivy": "Tantivy index"}
        seconds = [
            {"name": row["name"], "part": label, "seconds": row[name]} for row in built for name, label in parts.items()
        ]
        charts["shard-seconds"] = Chart(
            "Seconds per shard",
            "Time of the two parts of building each shard; shards are built at the same time.",
            {"name": "shard", "part": "part", "seconds": "seconds"},
            seconds,
            bars(
                "seconds", "name", value_title="seconds", rows=len(built),
                color=series("part", "part", list(parts.values())),
            ),
        )  # fmt: skip
        drawn.append("shard-seconds")
    charts["shard-bytes"] = Chart(
        "Bytes per shard",
        "Bytes of all files of each shard.",
        {"name": "shard", "bytes": "bytes"},
        [{"name": row["name"], "bytes": row["bytes"]} for row in rows[:_SHARDS]],
        bars("bytes", "name", value_title="bytes", rows=min(len(rows), _SHARDS), x_format="~s"),
    )
    drawn.append("shard-bytes")
    return Section("shards", "Shards", charts=drawn, tables=[Table("Shards of the build", _SHARD_COLUMNS, rows)])


def _gates(data: Mapping[str, Any]) -> Section:
    if not data["gates"]:
        return Section("gates", "Gates", ["No gate with a limit has examined this version."])
    return Section("gates", "Gates", tables=[Table("Gates before the publication", _GATE_COLUMNS, data["gates"])])


def _history(data: Mapping[str, Any], charts: dict[str, Chart]) -> Section:
    rows = [
        {**build, "build": number, "version": build["version"][:12]} for number, build in enumerate(data["builds"], 1)
    ]
    found = {
        "build-seconds": curves(
            "Seconds per build", "Wall time of each recorded build.", rows, "build", {"seconds": "seconds"},
            x_title="build, oldest first", y_title="seconds",
        ),
        "build-bytes": curves(
            "Bytes written per build", "Bytes of new shards and tombstones.", rows, "build",
            {"bytes_written": "bytes"}, x_title="build, oldest first", y_title="bytes",
        ),
    }  # fmt: skip
    drawn = {name: chart for name, chart in found.items() if chart is not None and len(rows) > 1}
    charts.update(drawn)
    for row in rows:
        row["finished_at"] = moment(row["finished_at"])
    table = Table("Recorded builds, newest first", _BUILD_COLUMNS, rows[::-1])
    return Section("builds", "Builds", charts=list(drawn), tables=[table])
