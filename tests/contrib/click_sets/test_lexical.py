from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.inference.terms.analysis import distinct_words
from lsr_prod_contrib.click_sets.lexical import (
    WordPostings,
    matched_terms,
    query_vocabulary,
    required_matches,
    term_rows,
)
from tests.contrib.click_sets.logs import WORDS

TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, st.sampled_from([0.0, 0.28, 0.5, 0.99]))
def test_matches_and_postings_equal_sets_of_words(queries, documents, ratio):
    vocabulary = query_vocabulary(queries)
    words, others = term_rows(queries, vocabulary), term_rows(documents, vocabulary)
    expected = [[len({*distinct_words(q)} & {*distinct_words(d)}) for d in documents] for q in queries]
    pairs = [(q, d) for q in range(len(queries)) for d in range(len(documents))]
    query, document = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    assert matched_terms(words, others, query, document, len(vocabulary)).tolist() == list(chain(*expected))
    postings = WordPostings(others, len(vocabulary))
    for row, number in enumerate(words.lengths.tolist()):
        if number:
            found, counts = postings.matching(words.row(row), required_matches(number, ratio))
            above = {d: n for d, n in enumerate(expected[row]) if n / number > ratio}
            assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == above


def test_words_are_stemmed_and_repeated_words_count_once():
    vocabulary = query_vocabulary(["Running shoes shoes"])
    assert term_rows(["Running shoes shoes", "run SHOE", "walk"], vocabulary).lengths.tolist() == [2, 2, 0]


def test_required_number_is_the_smallest_above_the_ratio():
    assert [required_matches(words, 0.5) for words in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert [required_matches(words, 0.0) for words in (1, 2, 9)] == [1, 1, 1]
    assert required_matches(25, 0.28) == 8  # 7 / 25 is not above .28
