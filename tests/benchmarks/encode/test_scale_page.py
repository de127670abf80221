"""The page about ten billion documents shows what the code computes today."""

from benchmarks.encode.scale_page import PAGE, index_cpu_hours, updated


def test_the_page_is_what_its_inputs_give() -> None:
    page = PAGE.read_text()
    assert updated(page) == page
    assert round(index_cpu_hours()) == 28
