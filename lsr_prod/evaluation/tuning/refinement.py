"""Search for the best candidate without measuring all of them."""

from collections.abc import Callable, Sequence

from lsr_prod.evaluation.tuning.candidates import Candidate, preference

_COARSE = 8  # intervals of the first pass
_BEST = 3  # weights around which a pass refines


def best_candidate(
    value: Callable[[Candidate], float], thresholds: Sequence[float], weights: Sequence[float], *, exhaustive: bool
) -> Candidate:
    """Return the candidate with the highest value; of equal ones the first by ``preference``.

    For every threshold, a first pass measures no words and 9 weights at equal distances on the grid; each further pass
    halves the distance around the 3 best weights so far. The mean of a rank measure over many queries varies little
    between neighboring weights, so a maximum that all passes miss is hardly higher than the one they find.
    """
    found: list[Candidate] = []
    for threshold in dict.fromkeys(thresholds):
        found.append(Candidate(threshold, None))
        row = [Candidate(threshold, weight) for weight in weights]
        found += row if exhaustive else _refine(value, row)
    return min(found, key=lambda one: (-value(one), *preference(one)))


def _refine(value: Callable[[Candidate], float], row: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates of one threshold that were measured."""
    last, distance = len(row) - 1, 1
    while distance * _COARSE < last:
        distance *= 2
    places = {*range(0, last, distance), last}
    while distance > 1:
        distance //= 2
        best = sorted(places, key=lambda place: (-value(row[place]), *preference(row[place])))[:_BEST]
        near = {place + step for place in best for step in (-distance, distance)}
        places |= {place for place in near if 0 <= place <= last}
    return [row[place] for place in sorted(places)]
