import io
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.corpus import compression as module
from lsr_prod.corpus.lines import lines


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"x")), max_size=12),
    ending=st.sampled_from([b"", b"\n"]),
    cuts=st.lists(st.integers(0, 120), max_size=5),
    limit=st.integers(1, 15),
    block=st.integers(1, 7),
)
def test_byte_ranges_that_tile_a_file_yield_every_line_once(rows, ending, cuts, limit, block):
    data = b"\n".join(rows) + ending
    expected, offset = [], 0
    *ended, last = data.split(b"\n")
    for line in [*ended, last] if last else ended:
        expected.append((offset, line[:limit], len(line) <= limit))
        offset += len(line) + 1
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    kept, module._BLOCK = module._BLOCK, block
    try:
        found = [
            row for start, stop in itertools.pairwise(bounds) for row in lines(io.BytesIO(data), start, stop, limit)
        ]
    finally:
        module._BLOCK = kept
    assert found == expected
