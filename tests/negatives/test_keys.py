"""Keys name texts, documents, and pairs of both."""

from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.negatives.keys import id_key, normalised, pair_key, text_key


def test_white_space_is_no_difference_between_texts_but_one_between_ids():
    assert normalised("  a\tb\n c ") == "a b c"
    assert text_key("a  b") == text_key("\na b ")
    assert text_key("a b") != text_key("ab")
    assert id_key("a  b") != id_key("a b")


def test_an_id_is_not_the_text_that_it_reads_as():
    assert id_key("abc") != text_key("abc")


@given(st.text(), st.text(), st.text(), st.text())
def test_pairs_are_told_apart_wherever_the_query_ends(query: str, doc_id: str, other: str, another: str):
    assert (pair_key(query, doc_id) == pair_key(other, another)) == ((query, doc_id) == (other, another))
    assert 0 <= pair_key(query, doc_id) < 1 << 64
