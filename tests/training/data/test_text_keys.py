import numpy as np

from lsr_prod.training.data.training_set import text_keys


def key(*ids: int) -> int:
    return int(text_keys([np.array(ids, np.int32)])[0])


def test_texts_have_equal_keys_if_their_token_ids_are_equal():
    assert key(101, 7, 102) == key(101, 7, 102) != key(101, 8, 102)
    assert len({key(), key(0), key(0, 0), key(1, 2), key(2, 1)}) == 5


def test_keys_do_not_change_between_releases():
    assert text_keys([np.array([101, 2054, 102], np.int32), np.empty(0, np.int32)]).tolist() == [
        6147352207698093406,
        -5426141060434712860,
    ]
    assert text_keys([]).dtype == np.int64


def test_key_of_a_view_is_key_of_its_content():
    strided = np.arange(20, dtype=np.int32)[::2]
    assert text_keys([strided]) == text_keys([strided.copy()])
