"""The page of an index: bytes by part, postings, dead and unexplained terms, lineage, publications."""

from collections.abc import Mapping
from typing import Any

from lsr_prod_contrib.pages.charts import bars, lines
from lsr_prod_contrib.pages.sections import (
    Chart,
    Page,
    Section,
    Table,
    moment,
    sections_page,
    show_bytes,
    show_number,
    show_percent,
)

_SHARD_COLUMNS = {
    "shard": "shard", "role": "role", "documents": "documents", "tombstones": "tombstones", "postings": "postings",
    "bytes": "bytes", "impacts": "postings arrays", "forward": "vectors", "tantivy": "Tantivy", "docs": "documents",
}  # fmt: skip
_HISTORY_COLUMNS = {
    "number": "number", "published_at": "published (UTC)", "version": "version", "state": "state",
    "documents": "documents", "tombstones": "tombstones", "bytes": "bytes", "changed": "what changed", "by": "who",
    "why": "why",
}  # fmt: skip
_EXPANDED_COLUMNS = {
    "term": "term", "expanded": "texts expanded", "activated": "texts activated", "contained": "texts that contain it",
    "mean_weight": "mean weight",
}  # fmt: skip
_UNEXPLAINED_COLUMNS = {
    "term": "term", "unexplained": "unexplained", "expanded": "texts expanded", "contained": "texts that contain it",
    "mean_weight": "mean weight",
}  # fmt: skip
_PARTS = {
    "impacts": "postings", "forward": "vectors by document", "tantivy": "Tantivy index", "docs": "stored documents",
    "bundle": "encoder bundle", "other": "other files",
}  # fmt: skip


def index_page(data: Mapping[str, Any]) -> Page:
    """Return the page of ``diagnostics.index_report.describe_index``."""
    sections = [
        _summary(data),
        _bytes(data),
        _postings(data["diagnosis"]),
        _queries(data["queries"], data["postings_total"]),
        _dead(data["diagnosis"]),
        _expansion(data["diagnosis"]),
        _lineage(data),
        _publications(data),
    ]
    return sections_page("index", "Index", sections, data)


def _summary(data: Mapping[str, Any]) -> Section:
    total, documents = sum(data["bytes"].values()), data["documents"]
    facts = {
        "publication": data["publication"],
        "documents": documents,
        "postings": data["postings_total"],
        "shards": len(data["shards"]),
        "bytes": show_bytes(total),
        "bytes per document": round(total / documents) if documents else None,
        "tombstones": data["tombstones"],
        "documents taken down": data["takedowns"],
        "dead terms": show_percent(data["diagnosis"]["dead"]["share"]),
        "postings read per query": data["queries"]["mean"],
    }
    return Section("summary", "Summary", [f"Index: {data['index']}.", f"Version: {data['version']}."], facts)


def _bytes(data: Mapping[str, Any]) -> Section:
    rows = [{"part": _PARTS.get(part, part), "bytes": size} for part, size in data["bytes"].items()]
    chart = Chart(
        "Bytes by part",
        "Bytes of all shards of the version and of its bundle, by what they hold.",
        {"part": "part", "bytes": "bytes"},
        rows,
        bars("bytes", "part", value_title="bytes", rows=len(rows), x_format="~s"),
    )
    table = Table("Shards", _SHARD_COLUMNS, data["shards"])
    return Section("bytes", "Bytes and shards", charts={"bytes": chart}, tables=[table])


def _postings(found: Mapping[str, Any]) -> Section:
    postings, terms = found["postings"], found["activated"]
    rows = [{"rank": rank, "length": length} for rank, length in postings["curve"] if length]
    charts = {}
    if rows:
        spec = lines("rank", "length", x_title="rank of the term", y_title="documents", log_x=True, log_y=True)
        spec["mark"] = {**spec["mark"], "point": False}
        charts["postings"] = Chart(
            "Lengths of the postings lists",
            "Documents per term, terms from the most to the least frequent; empty lists are left out. A query costs "
            "the sum of the lengths of its terms, so a high start of the curve is expensive.",
            {"rank": "rank", "length": "documents"},
            rows,
            spec,
        )
    facts = {
        "mean length": postings["mean"],
        "standard deviation": postings["std"],
        "longest list": postings["max"],
        "empty lists": postings["empty"],
        "terms per document": terms["mean"],
        "its 95th percentile": terms["p95"],
        "documents without a term": terms["empty"],
        "activation rate": show_percent(terms["activation_rate"]),
    }
    text = [
        f"Lengths over all {show_number(found['terms'])} output terms, deleted documents included; terms per document "
        f"of a sample of {show_number(found['sample'])} documents."
    ]
    return Section("postings", "Postings", text, facts, charts=charts)


def _queries(found: Mapping[str, Any], postings: int) -> Section:
    heading = "Postings that a query reads"
    if not found["queries"]:
        return Section("queries", heading, ["No document of the sample has a term to make a query of."])
    facts = {
        "queries": found["queries"],
        "mean": found["mean"],
        "share of all postings": show_percent(found["mean"] / postings if postings else None),
        "median": found["p50"],
        "95th percentile": found["p95"],
    }
    text = [f"A search reads all postings of the terms of its query. Queries: {found['source']}."]
    return Section("queries", heading, text, facts)


def _dead(found: Mapping[str, Any]) -> Section:
    dead = found["dead"]
    facts = {
        "dead terms": dead["terms"],
        "share of all terms": show_percent(dead["share"]),
        "of these special tokens": dead["special"],
    }
    text = ["Terms of the output vocabulary that no document activates. A query cannot match by them."]
    return Section("dead", "Dead terms", text, facts, terms={"All dead terms": dead["list"]})


def _expansion(found: Mapping[str, Any]) -> Section:
    heading = "Expanded and unexplained terms"
    expansion, unexplained = found["expansion"], found["unexplained"]
    if expansion is None:
        return Section("expansion", heading, [f"Not available: {found['missing']['expansion']}."])
    rule = unexplained["rule"]
    text = [
        f"Terms that documents activate without containing them, in a sample of {show_number(expansion['texts'])} "
        f"documents. The text is that of the fields {', '.join(found['fields'])}.",
        f"An expansion is explained if a term of the text occurs with it in at least {rule['min_together']} texts of "
        f"the sample, with {rule['min_pmi']:g} bits of pointwise mutual information or more. Synonyms that authors do "
        "not use together count as unexplained; the list says where to look, and is no measure of quality.",
    ]
    facts = {
        "expanded terms": expansion["terms"],
        "share of terms": show_percent(expansion["term_share"]),
        "share of weight": show_percent(expansion["weight_share"]),
        "terms judged": unexplained["judged"],
        "too rare to judge": unexplained["too_rare"],
        "unexplained terms": unexplained["terms"],
        "unexplained weight": show_percent(unexplained["weight_share"]),
    }
    tables = [
        Table("Most expanded terms", _EXPANDED_COLUMNS, expansion["most"][:30]),
        Table("Terms with most unexplained expansions", _UNEXPLAINED_COLUMNS, unexplained["most"][:30]),
    ]
    return Section("expansion", heading, text, facts, tables=[table for table in tables if table.rows])


def _lineage(data: Mapping[str, Any]) -> Section:
    rows = [
        {"name": name, "value": None if value is None else str(value)}
        for name, value in {**data["lineage"], **data["settings"]}.items()
    ]
    table = Table("Lineage and settings of the version", {"name": "name", "value": "value"}, rows)
    return Section("lineage", "Lineage", tables=[table])


def _publications(data: Mapping[str, Any]) -> Section:
    facts = {"tombstones": data["tombstones"], "documents taken down": data["takedowns"]}
    rows = [{**row, "published_at": moment(row["published_at"])} for row in data["history"]]
    table = Table("Publications, newest first", _HISTORY_COLUMNS, rows)
    return Section("publications", "Publications", (), facts, tables=[table])
