import pytest
from ray.data import DataContext
from ray.exceptions import RayTaskError

from lsr_prod.cluster.data import data_settings, our_error
from lsr_prod.errors import SourceError


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


def test_error_of_lsr_prod_is_found_below_wrappers_of_ray() -> None:
    ours = SourceError("the file is gone")
    wrapped = RayTaskError("task", "traceback", ours)
    outer = RuntimeError("failed")
    outer.__cause__ = wrapped.as_instanceof_cause()
    assert our_error(outer) is ours


def test_other_errors_are_not_returned() -> None:
    outer = RuntimeError("failed")
    outer.__cause__ = ValueError("theirs")
    assert our_error(outer) is None
