from lsr_prod_contrib.estimates.dry_run import RunSize, count_requests


def test_requests_are_those_counted_at_an_endpoint():
    counted = {(8, 2): {"put": 26 + 3, "get": 153, "list": 57}, (20, 5): {"put": 53 + 6, "get": 444, "list": 90}}
    # The put requests of the records of waves and of the run came later and are added.
    for (parts, waves), wanted in counted.items():
        found = count_requests(RunSize(0, parts, waves))
        for kind, number in wanted.items():
            assert abs(found[kind] / number - 1) < 0.05, (parts, waves, kind)  # type: ignore[index]


def test_requests_of_a_large_run_grow_with_its_parts():
    size = RunSize.of_bytes(10**12, 512 * 10**9)
    assert (size.reads, size.parts, size.waves) == (125_000, 2000, 2)
