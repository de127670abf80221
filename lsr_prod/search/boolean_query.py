"""Boolean queries in the syntax of Tantivy's query parser: they become filters on tokens and attributes.

``lock AND NOT thread``, ``+lock -thread``, ``(lock OR event) AND year:[2000 TO *]``, ``lang:IN [en de]``,
``lang:*`` (has a value), ``title:"An exact value"``, ``title:An*`` or ``title:"An exact"*`` (a prefix),
``published:>=2020-01-01T00:00:00Z``, ``*``. Words without an operator are alternatives, as in Tantivy. A word is
analyzed as at build time; if it becomes several tokens, a document must contain all of them. Negation and missing
values behave as in ``query.filters``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import tantivy

from lsr_prod.errors import QueryError
from lsr_prod.search.query import filter_types, query_text
from lsr_prod.search.query.filters import MAX_DEPTH, Combination, Condition, Filter, Negation, shorten
from lsr_prod.storage.formats.shard_format import TEXT_FIELD
from lsr_prod.storage.formats.stored_values import AttributeType, AttributeValue, parse_value

Analyze = Callable[[str], list[str]]

_MAX_QUERY = 4096  # characters
_MAX_NOT = 100  # Tantivy's parser is recursive; deep nesting crashes the process
_EVERYTHING = query_text.TextTokens(())


def parse_text_queries(expression: Filter, attributes: Mapping[str, AttributeType], analyze: Analyze) -> Filter:
    """Return a checked filter with its text queries parsed."""
    match expression:
        case Combination(operator, parts):
            return Combination(operator, tuple(parse_text_queries(part, attributes, analyze) for part in parts))
        case Negation(part):
            return Negation(parse_text_queries(part, attributes, analyze))
        case query_text.TextQuery(text, match=match):
            parsed = _parse(text, attributes, analyze) if match is None else _words(text, match, analyze)
            return query_text.TextQuery(text, parsed, match)
    return expression


def _parse(text: str, attributes: Mapping[str, AttributeType], analyze: Analyze) -> Filter:
    """Parse a Boolean query into filters on tokens and attributes."""
    _check_text(text)
    try:
        tree = tantivy.parse_query(text)
    except ValueError as error:
        raise QueryError(
            f"the query {shorten(text)} cannot be parsed; balance its brackets, and put values with spaces or colons "
            "into double quotes, except the bounds of a range"
        ) from error
    return _Reader(attributes, analyze).read(tree, 1)


def _words(text: str, match: query_text.Match, analyze: Analyze) -> Filter:
    """Return the filter of words without syntax."""
    parts = dict.fromkeys(tuple(tokens) for tokens in map(analyze, text.split()) if tokens)
    if match == "any" or not parts:
        return _any(map(query_text.TextTokens, parts))
    return query_text.TextTokens(tuple(dict.fromkeys(chain.from_iterable(parts))))


def _check_text(text: str) -> None:
    if not isinstance(text, str) or any("\ud800" <= character <= "\udfff" for character in text):
        raise QueryError(f"the query {shorten(text)} is not a valid string; give one without lone surrogates")
    if len(text) > _MAX_QUERY:
        raise QueryError(f"the query has {len(text)} characters; give at most {_MAX_QUERY}")
    depth = deepest = 0
    for character in text:
        depth += (character == "(") - (character == ")" and depth > 0)
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH or text.count("NOT") > _MAX_NOT:
        raise QueryError(
            f"the query nests more than {MAX_DEPTH} brackets or has more than {_MAX_NOT} NOT; give a flatter one"
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Converts the parser's tree to filters and tokens."""

    attributes: Mapping[str, AttributeType]
    analyze: Analyze

    def read(self, node: Mapping[str, Any], depth: int) -> Filter:
        if depth > 2 * MAX_DEPTH:  # a bracket with a NOT in it has two levels
            raise QueryError(f"the query is nested more than {2 * MAX_DEPTH} deep; give a flatter one")
        match node["type"]:
            case "bool":
                return self._clauses([(occur, self.read(part, depth + 1)) for occur, part in node["clauses"]])
            case "boost":  # matching has no scores to weight
                return self.read(node["underlying"], depth + 1)
            case "all":
                return _EVERYTHING
            case "literal":
                return self._literal(node)
            case "set":
                return _any(self._equal(node["field"], value) for value in node["elements"])
            case "exists":
                return Negation(self._condition(node["field"], "is_null", None))
            case "range":
                return self._range(node)
        raise QueryError(f"a Boolean query does not support {node['type']}; remove it")

    def _clauses(self, clauses: list[tuple[str | None, Filter]]) -> Filter:
        """Combine clauses as Tantivy does: all MUST and no MUST NOT; without MUST, any of the others."""
        if not clauses:
            raise QueryError("the query is empty; give a word, or * for all documents")
        must = [part for occur, part in clauses if occur == "must"]
        others = [part for occur, part in clauses if occur in (None, "should")]
        if others and not must:
            must = [_any(others)]
        return Combination("and", (*must, *(Negation(part) for occur, part in clauses if occur == "must_not")))

    def _literal(self, node: Mapping[str, Any]) -> Filter:
        name, value, quoted = node["field_name"], node["phrase"], node["delimiter"] != "none"
        prefix = node["prefix"]
        if not quoted and value.endswith("*") and not value.endswith("\\*"):
            value, prefix = value[:-1], True
        if _is_text(name):
            if prefix:
                raise QueryError(
                    f"{shorten(value)}* is a prefix of a word, which text queries do not support; give the whole word"
                )
            return self._words(value, quoted)
        return self._condition(name, "prefix", value) if prefix else self._equal(name, value)

    def _equal(self, name: str | None, value: str) -> Filter:
        return self._words(value, quoted=False) if _is_text(name) else self._condition(name, "eq", value)

    def _words(self, text: str, quoted: bool) -> Filter:
        tokens = self.analyze(text)
        if not tokens:
            raise QueryError(f"{shorten(text)} contains no indexable word; remove it")
        if quoted and len(tokens) > 1:
            raise QueryError(
                f"the index stores no positions, which the phrase {shorten(text)} needs; combine its words with AND"
            )
        return query_text.TextTokens(tuple(tokens))

    def _range(self, node: Mapping[str, Any]) -> Filter:
        operators = {("lower", "inclusive"): "ge", ("lower", "exclusive"): "gt"}
        operators |= {("upper", "inclusive"): "le", ("upper", "exclusive"): "lt"}
        bounds = [(end, node[end]) for end in ("lower", "upper") if node[end]["type"] != "unbounded"]
        if not bounds:
            return Negation(self._condition(node["field"], "is_null", None))
        return Combination(
            "and", tuple(self._condition(node["field"], operators[end, b["type"]], b["value"]) for end, b in bounds)
        )

    def _condition(self, name: str | None, operator: Any, text: str | None) -> Filter:
        if _is_text(name):
            raise QueryError("the text supports words only; use an attribute for ranges and *")
        assert name is not None
        value: AttributeValue | None = text
        if text is not None and name in self.attributes:
            kind = self.attributes[name]
            try:
                value = parse_value(text, kind)
            except ValueError as error:
                raise QueryError(f"{shorten(text)} does not fit attribute {name!r}; give a {kind}") from error
        return filter_types.check_filter(Condition(name, operator, value), self.attributes)


def _is_text(name: str | None) -> bool:
    return name is None or name == TEXT_FIELD


def _any(parts: Iterable[Filter]) -> Filter:
    found = tuple(parts)
    return Combination("or", found) if found else Negation(_EVERYTHING)
