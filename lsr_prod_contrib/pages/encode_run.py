"""The page of an encode run: waves, rates, idle share of the encoders, quarantined rows by reason, cost."""

from collections.abc import Mapping
from typing import Any

from lsr_prod_contrib.pages.charts import bars, series
from lsr_prod_contrib.pages.sections import (
    Chart,
    Page,
    Section,
    Table,
    curves,
    drawn,
    moment,
    sections_page,
    show_bytes,
    show_percent,
)

_WAVES = 60  # of the timeline
_TABLE = 500  # waves
_WAVE_COLUMNS = {
    "number": "wave", "committed_at": "committed (UTC)", "rows_in": "rows", "rows_out": "documents",
    "quarantined": "quarantined", "encoded": "through the model", "deleted": "deleted", "parts": "parts",
    "bytes": "bytes", "tokens_per_s": "tokens/s", "documents_per_s": "documents/s",
    "idle_share": "idle share", "encoders": "encoders",
    "commit_seconds": "commit s", "reused_cells": "reused cells", "attempt": "attempt",
}  # fmt: skip
_RUN_COLUMNS = {
    "attempt": "attempt", "finished_at": "finished (UTC)", "seconds": "seconds", "actors": "encoders",
    "threads_per_actor": "threads", "encoded": "through the model", "docs_per_s": "documents/s", "tokens": "tokens",
    "idle_share": "idle share", "core_hours": "core hours", "requests": "requests", "bytes_read": "bytes read",
    "bytes_written": "bytes written", "cost": "cost",
}  # fmt: skip
_IDLE = (
    "The idle share of a run is the time in which its encoders ran no model, of the time from its first to its last "
    "block. Waves overlap, so the idle share of a wave is too high where encoders worked for the next one."
)
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


def encode_page(data: Mapping[str, Any]) -> Page:
    """Return the page of ``runs.encoding.describe_encoding``."""
    sections = [_summary(data), _waves(data), _quarantine(data), _runs(data)]
    return sections_page("encode", "Encode run", sections, data)


def _summary(data: Mapping[str, Any]) -> Section:
    plan, runs = data["plan"], data["runs"]
    waves = "unknown" if plan["waves"] is None else f"{plan['waves_done']} of {plan['waves']}"
    idle = runs[-1]["idle_share"] if runs else None
    facts = {
        "state": plan["state"],
        "waves committed": waves,
        "documents in the table": data["documents"],
        "rows of the plan": sum(wave["rows_in"] for wave in data["waves"]),
        "quarantined": sum(data["reasons"].values()),
        "documents/s, last run": runs[-1]["docs_per_s"] if runs else None,
        "encoders idle, last run": show_percent(idle),
        "bytes written by waves": show_bytes(sum(wave["bytes"] for wave in data["waves"])),
    }
    version = "not created" if data["version"] is None else f"version {data['version']}"
    text = [f"Table: {data['table']} ({version})."]
    text.append(f"Plan: {plan['plan']}, {plan['kind']}; the table has {data['plans']} plans.")
    return Section("summary", "Summary", text, facts)


def _waves(data: Mapping[str, Any]) -> Section:
    waves = [
        {**wave, "number": wave["wave"] + 1, "committed_at": moment(wave["committed_at"])} for wave in data["waves"]
    ]
    if not waves:
        return Section("waves", "Waves", ["No wave is recorded: none was committed."])
    rows = {"rows_out": "documents", "quarantined": "quarantined"}
    charts = {
        "rows": curves(
            "Rows per wave", "Rows of the source that became documents, and bad rows.", waves, "number", rows,
            x_title="wave", y_title="rows",
        ),
        "rate": curves(
            "Tokens per second", "Tokens that the models read, per second from the first to the last block of a wave.",
            waves, "number", {"tokens_per_s": "tokens"}, x_title="wave", y_title="tokens per second",
        ),
        "idle": curves(
            "Idle share of the encoders", "Share of the encoders' time in a wave in which they ran no model.", waves,
            "number", {"idle_share": "idle share"}, x_title="wave", y_title="share",
        ),
        "commit": curves(
            "Commits", "Duration of the commit of each wave.", waves, "number", {"commit_seconds": "commit"},
            x_title="wave", y_title="seconds",
        ),
        "timeline": _timeline(waves),
    }  # fmt: skip
    table = Table(f"Waves, newest first, at most {_TABLE}", _WAVE_COLUMNS, waves[::-1][:_TABLE])
    return Section("waves", "Waves", [_IDLE], charts=drawn(charts), tables=[table])


def _timeline(waves: list[dict[str, Any]]) -> Chart | None:
    """Return bars from the first to the last block of the waves of the newest attempt; None: there is none."""
    newest = max(wave["attempt"] for wave in waves)
    rows = [
        {"wave": f"wave {wave['number']}", "began": wave["began"], "ended": wave["ended"]}
        for wave in waves
        if wave["attempt"] == newest and wave["began"] is not None
    ][-_WAVES:]
    if not rows:
        return None
    axis = "seconds since the start of the run"
    spec = {
        "height": max(40, 18 * len(rows)),
        "mark": {"type": "bar", "tooltip": {"content": "data"}},
        "encoding": {
            "x": {"field": "began", "type": "quantitative", "title": axis},
            "x2": {"field": "ended"},
            "y": {"field": "wave", "type": "nominal", "sort": None, "title": None},
        },
    }
    columns = {"wave": "wave", "began": "first block (s)", "ended": "last block (s)"}
    description = f"First to last block of the waves of attempt {newest}, at most the last {_WAVES}. Waves overlap."
    return Chart("Timeline", description, columns, rows, spec)


def _quarantine(data: Mapping[str, Any]) -> Section:
    rows = [{"reason": reason, "rows": count} for reason, count in data["reasons"].items()]
    if not rows:
        return Section("quarantine", "Quarantined rows", ["No row of the recorded waves was quarantined."])
    spec = bars("rows", "reason", value_title="rows", rows=len(rows))
    columns = {"reason": "reason", "rows": "rows"}
    chart = Chart("Quarantined rows by reason", "Bad rows of the recorded waves.", columns, rows, spec)
    text = ["lsr-prod table quarantine shows the rows and their source."]
    return Section("quarantine", "Quarantined rows", text, charts={"reasons": chart})


def _runs(data: Mapping[str, Any]) -> Section:
    if not data["runs"]:
        return Section("runs", "Runs and cost", ["No finished run of this plan is recorded."])
    columns = dict(_RUN_COLUMNS)
    if data["currency"] is None:
        del columns["cost"]
        text = "Core hours are encoders times threads times duration; give --cluster FILE for a price."
    else:
        columns["cost"] = f"cost ({data['currency']})"
        text = (
            "The cost is the price of all nodes of --cluster for the duration; requests and storage are not included."
        )
    runs = [{**run, "finished_at": moment(run["finished_at"])} for run in data["runs"]]
    return Section("runs", "Runs and cost", [text], tables=[Table("Finished runs", columns, runs)])


def builds_page(data: Mapping[str, Any]) -> Page:
    """Return the page of ``runs.encoding.describe_builds``."""
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
        _shards(data),
        _gates(data),
        _history(data),
    ]
    return sections_page("index-run", "Index run", sections, data)


def _shards(data: Mapping[str, Any]) -> Section:
    rows = [
        {**shard, "name": shard["sha"][:12], "reused": "yes" if shard["reused"] else "no"} for shard in data["shards"]
    ]
    if not rows:
        return Section("shards", "Shards", ["This build planned no shard: it published a version that was there."])
    built = [row for row in rows if row["reused"] == "no"][:_SHARDS]
    charts = {}
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
    charts["shard-bytes"] = Chart(
        "Bytes per shard",
        "Bytes of all files of each shard.",
        {"name": "shard", "bytes": "bytes"},
        [{"name": row["name"], "bytes": row["bytes"]} for row in rows[:_SHARDS]],
        bars("bytes", "name", value_title="bytes", rows=min(len(rows), _SHARDS), x_format="~s"),
    )
    return Section("shards", "Shards", charts=charts, tables=[Table("Shards of the build", _SHARD_COLUMNS, rows)])


def _gates(data: Mapping[str, Any]) -> Section:
    if not data["gates"]:
        return Section("gates", "Gates", ["No gate with a limit has examined this version."])
    return Section("gates", "Gates", tables=[Table("Gates before the publication", _GATE_COLUMNS, data["gates"])])


def _history(data: Mapping[str, Any]) -> Section:
    rows = [
        {**build, "build": number, "version": build["version"][:12]} for number, build in enumerate(data["builds"], 1)
    ]
    charts = {
        "build-seconds": curves(
            "Seconds per build", "Wall time of each recorded build.", rows, "build", {"seconds": "seconds"},
            x_title="build, oldest first", y_title="seconds",
        ),
        "build-bytes": curves(
            "Bytes written per build", "Bytes of new shards and tombstones.", rows, "build",
            {"bytes_written": "bytes"}, x_title="build, oldest first", y_title="bytes",
        ),
    }  # fmt: skip
    for row in rows:
        row["finished_at"] = moment(row["finished_at"])
    table = Table("Recorded builds, newest first", _BUILD_COLUMNS, rows[::-1])
    return Section("builds", "Builds", charts=drawn(charts) if len(rows) > 1 else {}, tables=[table])
