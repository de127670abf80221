from hypothesis import given
from hypothesis import strategies as st

from lsr_prod_contrib.sweeps.report import pareto_front


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25))
def test_front_equals_brute_force_in_order_of_cost(points: list[tuple[int, int]]) -> None:
    def dominated(i: int) -> bool:
        value, cost = points[i]
        return any(v >= value and c <= cost and (v > value or c < cost) for v, c in points)

    front = pareto_front([value for value, _ in points], [cost for _, cost in points])
    assert sorted(front) == [i for i in range(len(points)) if not dominated(i)]
    assert front == sorted(front, key=lambda i: points[i][1])
