"""Boolean queries for Tantivy: filters, and text in the syntax of its query parser.

Tantivy reads the text; what it reads becomes a tree of filters and words and is translated here, since its own
translation loses negations inside a conjunction (``lock AND NOT thread`` finds nothing) and knows our types only in
part. Negation and missing values are as in ``search.filters``.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tantivy

from lsr_prod.errors import QueryError
from lsr_prod.formats.attributes import AttributeType, AttributeValue, attribute_column, parse_value
from lsr_prod.formats.shard import TEXT_FIELD
from lsr_prod.search.query.filter_types import check_filter
from lsr_prod.search.query.filters import DOC_ID, MAX_DEPTH, Combination, Condition, Filter, Negation, shorten

__all__ = ["TextTokens", "parse_boolean", "to_tantivy"]

Analyze = Callable[[str], list[str]]

_MAX_QUERY = 4096  # characters
_MAX_NOT = 100  # Tantivy's parser recurses; deep enough it ends the process
_EVERYTHING = Combination("and", ())
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_KINDS = {
    "int64": tantivy.FieldType.Integer,
    "float64": tantivy.FieldType.Float,
    "timestamp": tantivy.FieldType.Integer,
}


@dataclass(frozen=True, slots=True)
class TextTokens(Filter):
    """Documents whose text holds every one of some tokens."""

    tokens: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For messages; no filter of the documents' attributes."""
        return {"text": list(self.tokens)}


def to_tantivy(expression: Filter, schema: Any, attributes: Mapping[str, AttributeType]) -> Any:
    """A filter as a ``tantivy.Query``.

    Args:
        expression: the filter.
        schema: of the Tantivy index.
        attributes: type by name.

    Raises:
        QueryError: the filter does not fit the attributes, or asks for what Tantivy cannot do: conditions on
            ``doc_id``, and ranges of strings.
    """
    return _translate(check_filter(expression, attributes), schema, attributes, wanted=True)


def parse_boolean(text: str, schema: Any, attributes: Mapping[str, AttributeType], analyze: Analyze) -> Any:
    """A Boolean query as a ``tantivy.Query``.

    ``lock AND NOT thread``, ``+lock -thread``, ``(lock OR event) AND year:[2000 TO *]``, ``lang:IN [en de]``,
    ``lang:*`` (has a value), ``title:"An exact value"``, ``title:An*`` or ``title:"An exact"*`` (a prefix),
    ``published:>=2020-01-01T00:00:00Z``, ``*``. Words side by side are alternatives, as in Tantivy. A word of the
    text is analysed as at build time, and one of several tokens needs all of them.

    Args:
        text: the query.
        schema: of the Tantivy index.
        attributes: type by name.
        analyze: the tokens of a text.

    Raises:
        QueryError: it cannot be read, names an unknown attribute, or asks for phrases, regular expressions, prefixes
            of words or ranges of strings.
    """
    _check_text(text)
    try:
        tree = tantivy.parse_query(text)
    except ValueError as error:
        raise QueryError(
            f"the query {shorten(text)} cannot be read; balance its brackets, and put values with spaces or colons "
            "into double quotes, except those of a range"
        ) from error
    return _translate(_Reader(attributes, analyze).read(tree, 1), schema, attributes, wanted=True)


def _check_text(text: str) -> None:
    if not isinstance(text, str) or any("\ud800" <= character <= "\udfff" for character in text):
        raise QueryError(f"the query {shorten(text)} is no valid text; give a string")
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
    """From the parser's tree to filters and words."""

    attributes: Mapping[str, AttributeType]
    analyze: Analyze

    def read(self, node: Mapping[str, Any], depth: int) -> Filter:
        if depth > 2 * MAX_DEPTH:  # a bracket and a NOT in it are two levels
            raise QueryError(f"the query is nested more than {2 * MAX_DEPTH} deep; give a flatter one")
        match node["type"]:
            case "bool":
                return self._clauses([(occur, self.read(part, depth + 1)) for occur, part in node["clauses"]])
            case "boost":  # weighs a score, and there is none
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
        raise QueryError(f"a Boolean query takes no {node['type']}; leave it out")

    def _clauses(self, clauses: list[tuple[str | None, Filter]]) -> Filter:
        """Tantivy's rule: what must and must not be; else any of the others."""
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
                    f"{shorten(value)}* is a prefix of a word, which the text cannot be asked for; write it out"
                )
            return self._words(value, quoted)
        return self._condition(name, "prefix", value) if prefix else self._equal(name, value)

    def _equal(self, name: str | None, value: str) -> Filter:
        return self._words(value, quoted=False) if _is_text(name) else self._condition(name, "eq", value)

    def _words(self, text: str, quoted: bool) -> Filter:
        tokens = self.analyze(text)
        if not tokens:
            raise QueryError(f"{shorten(text)} holds no word that the text could; leave it out")
        if quoted and len(tokens) > 1:
            raise QueryError(f"the index keeps no positions for the phrase {shorten(text)}; combine its words with AND")
        return TextTokens(tuple(tokens))

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
            raise QueryError("the text takes words only; ask an attribute for ranges and *")
        assert name is not None
        value: AttributeValue | None = text
        if text is not None and name in self.attributes:
            kind = self.attributes[name]
            try:
                value = parse_value(text, kind)
            except ValueError as error:
                raise QueryError(f"{shorten(text)} does not fit attribute {name!r}; give a {kind}") from error
        return check_filter(Condition(name, operator, value), self.attributes)


def _is_text(name: str | None) -> bool:
    return name is None or name == TEXT_FIELD


def _any(parts: Iterable[Filter]) -> Filter:
    return Combination("or", tuple(parts))


def _translate(expression: Filter, schema: Any, attributes: Mapping[str, AttributeType], *, wanted: bool) -> Any:
    """Where the filter is true, or (``wanted`` False) where it is false; unknown is neither."""
    match expression:
        case Combination(operator, parts):
            queries = [_translate(part, schema, attributes, wanted=wanted) for part in parts]
            return _all(queries) if (operator == "and") == wanted else _some(queries)
        case Negation(part):
            return _translate(part, schema, attributes, wanted=not wanted)
        case TextTokens(tokens):
            query = _all([tantivy.Query.term_query(schema, TEXT_FIELD, token, index_option="freq") for token in tokens])
            return query if wanted else _all([], but_not=query)
        case Condition(name, operator, _):
            present = tantivy.Query.exists_query(attribute_column(name)) if name != DOC_ID else None
            if operator == "is_null":
                return _all([], but_not=present) if wanted else present
            query = _condition(expression, schema, attributes)
            return query if wanted else _all([present], but_not=query)
    raise AssertionError(f"unknown filter {type(expression)}")


def _condition(condition: Condition, schema: Any, attributes: Mapping[str, AttributeType]) -> Any:
    name, value = condition.name, condition.value
    if name == DOC_ID:
        raise QueryError("Tantivy does not hold doc_id; give the filter to a search")
    column, kind = attribute_column(name), attributes[name]
    match condition.operator, value:
        case "eq", _:
            return tantivy.Query.term_query(schema, column, _stored(value), index_option="basic")
        case "in", tuple():
            return tantivy.Query.term_set_query(schema, column, [_stored(each) for each in value])
        case "prefix", "":
            return tantivy.Query.exists_query(column)
        case "prefix", str():
            # A regular expression would end at 1,000 states.
            return tantivy.Query.fuzzy_term_query(schema, column, value, distance=0, prefix=True)
    if kind not in _KINDS:
        raise QueryError(f"Tantivy has no ranges of {kind}, which {name!r} is; give the filter to a search")
    # Tantivy wants an open end to be called inclusive.
    bound, inclusive = _stored(value), condition.operator in ("ge", "le")
    ends = (bound, None, inclusive, True) if condition.operator in ("gt", "ge") else (None, bound, True, inclusive)
    return tantivy.Query.range_query(schema, column, _KINDS[kind], *ends)


def _stored(value: Any) -> Any:
    """As the builder wrote it: timestamps are microseconds since 1970, since Tantivy's dates end at the second."""
    return (value - _EPOCH) // dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else value


def _all(queries: list[Any], but_not: Any = None) -> Any:
    clauses = [(tantivy.Occur.Must, query) for query in queries or [tantivy.Query.all_query()]]
    if but_not is not None:
        clauses.append((tantivy.Occur.MustNot, but_not))
    return tantivy.Query.boolean_query(clauses)


def _some(queries: list[Any]) -> Any:
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])
