"""The words are equal to those of Tantivy's ``en_stem`` tokenizer."""

from itertools import pairwise

import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.inference.terms.analysis import distinct_words, words_of


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=60) | st.sampled_from(["Running foxes' DOGS", "x" * 39 + " " + "y" * 40 + " z", "naïve Ünïcode"])
)
def test_words_equal_terms_of_tantivy_index(text):
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("text", tokenizer_name="en_stem", index_option="position")
    index = tantivy.Index(schema.build())
    writer = index.writer(heap_size=15_000_000, num_threads=1)
    document = tantivy.Document()
    document.add_text("text", text)
    writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    words = words_of(text)
    searcher = index.searcher()
    for word in words:
        assert searcher.search(tantivy.Query.term_query(index.schema, "text", word), count=True).count == 1
    pairs = [tantivy.Query.phrase_query(index.schema, "text", [one, other]) for one, other in pairwise(words)]
    if not any(len(word) >= 40 for word in text.split()):  # a long word leaves a gap between its neighbours
        assert all(searcher.search(pair, count=True).count == 1 for pair in pairs)


def test_repeated_words_are_kept_and_long_words_dropped():
    assert words_of("Locks, locking; the LOCK") == ["lock", "lock", "the", "lock"]
    assert distinct_words("Locks, locking; the LOCK") == ["lock", "the"]
    assert words_of("a" * 39 + " " + "b" * 40) == ["a" * 39]
    assert words_of("") == distinct_words(" .!") == []
