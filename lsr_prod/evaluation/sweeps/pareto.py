"""Pareto fronts of quality against a cost."""

from collections.abc import Sequence


def pareto_front(values: Sequence[float], costs: Sequence[float]) -> list[int]:
    """Return the points that no other point dominates, by rising cost.

    A point dominates another if its value is not lower and its cost not higher, and one of the two is better. Points
    with equal value and equal cost do not dominate each other.

    Returns:
        Positions of the points, by rising cost, ties in the given order.
    """
    order = sorted(range(len(values)), key=lambda place: (costs[place], -values[place]))
    front: list[int] = []
    for place in order:
        ties = bool(front) and (values[place], costs[place]) == (values[front[-1]], costs[front[-1]])
        if not front or ties or values[place] > values[front[-1]]:
            front.append(place)
    return front
