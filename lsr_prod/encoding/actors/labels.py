"""Label selectors of Ray: conditions on the labels of a node, ``value``, ``!value``, ``in(a,b)`` or ``!in(a,b)``."""

from collections.abc import Mapping


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether the labels of a node fulfill all conditions."""
    return all(_fulfills(condition, labels.get(key)) for key, condition in selector.items())


def _fulfills(condition: str, value: str | None) -> bool:
    negated, positive = condition.startswith("!"), condition.removeprefix("!")
    listed = positive.removeprefix("in(").removesuffix(")") if positive.startswith("in(") else None
    values = [positive] if listed is None else [each.strip() for each in listed.split(",")]
    return (value in values) != negated
