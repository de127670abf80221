import pytest
from ray.data import DataContext

from lsr_prod.cluster.data import data_settings


def test_settings_are_restored_after_an_error() -> None:
    context = DataContext.get_current()
    names = ("enable_progress_bars", "max_errored_blocks", "target_max_block_size")
    before = [getattr(context, name) for name in names]
    inside = []

    def fail() -> None:
        with data_settings(target_max_block_size=12345):
            inside.extend(getattr(context, name) for name in names)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert inside == [False, 0, 12345]
    assert [getattr(context, name) for name in names] == before
