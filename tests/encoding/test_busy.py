from lsr_prod.encoding.results import BusyTime


def test_busy_share_is_the_time_of_blocks_by_the_time_from_first_to_last():
    busy = BusyTime.of_block(4.0, ended=14.0) + BusyTime.of_block(6.0, ended=17.0) + BusyTime.of_block(2.0, ended=20.0)
    assert (busy.seconds, busy.span_s) == (12.0, 10.0)
    assert busy.share(actors=2) == 0.6


def test_a_run_without_blocks_has_no_span():
    assert (BusyTime().span_s, BusyTime().share(actors=4)) == (0.0, 0.0)
