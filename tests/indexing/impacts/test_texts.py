import pyarrow as pa

from lsr_prod.indexing.impacts.postings import joined_texts


def test_joined_texts_joins_fields_with_spaces():
    rows = pa.table({"title": ["a", None, "", None], "text": ["b", "c", "d", None]})
    assert joined_texts(rows, ("title", "text")) == ["a b", "c", "d", ""]
    assert joined_texts(rows.to_batches()[0], ("text",)) == ["b", "c", "d", ""]
    assert joined_texts(rows, ()) == [""] * 4
