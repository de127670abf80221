"""What names a shard."""

from dataclasses import asdict, replace

from lsr_prod.indexing.plan import ShardLayout

LAYOUT = ShardLayout(256, "content", 64, 97, ("title", "text"), ("text",))


def test_shards_of_indexes_that_count_no_terms_keep_their_names() -> None:
    before = {
        "block_size": 256,
        "order": "content",
        "dk": 64,
        "vocabulary_size": 97,
        "stored_fields": ("title", "text"),
        "text_fields": ("text",),
        "attributes": (),
        "average_length": None,
        "compress": False,
    }
    assert LAYOUT.identity() == before


def test_what_decides_the_terms_of_texts_decides_the_name() -> None:
    counted = replace(LAYOUT, text_terms="a" * 64)
    assert counted.identity() == asdict(counted)
    assert counted.identity() != replace(LAYOUT, text_terms="b" * 64).identity() != LAYOUT.identity()
