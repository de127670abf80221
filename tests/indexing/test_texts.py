import pyarrow as pa

from lsr_prod.indexing.texts import joined_texts


def test_fields_stand_one_after_the_other():
    rows = pa.table({"title": ["a", None, "", None], "text": ["b", "c", "d", None]})
    assert joined_texts(rows, ("title", "text")) == ["a b", "c", "d", ""]
    assert joined_texts(rows.to_batches()[0], ("text",)) == ["b", "c", "d", ""]
    assert joined_texts(rows, ()) == [""] * 4
