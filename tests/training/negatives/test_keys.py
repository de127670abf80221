"""Tests of the keys of texts, documents and pairs."""

from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.negatives.rules import id_key, normalized, pair_key, text_key


def test_white_space_is_ignored_in_texts_but_not_in_ids():
    assert normalized("  a\tb\n c ") == "a b c"
    assert text_key("a  b") == text_key("\na b ")
    assert text_key("a b") != text_key("ab")
    assert id_key("a  b") != id_key("a b")


def test_id_and_equal_text_have_different_keys():
    assert id_key("abc") != text_key("abc")


@given(st.text(), st.text(), st.text(), st.text())
def test_pairs_with_equal_concatenation_have_different_keys(query: str, doc_id: str, other: str, another: str):
    assert (pair_key(query, doc_id) == pair_key(other, another)) == ((query, doc_id) == (other, another))
    assert 0 <= pair_key(query, doc_id) < 1 << 64
