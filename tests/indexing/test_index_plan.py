"""Digests that name shards."""

from dataclasses import asdict, replace

from lsr_prod.indexing.index_plan import ShardLayout

LAYOUT = ShardLayout(64, 97, ("title", "text"), ("text",))


def test_shard_names_do_not_change_without_text_terms() -> None:
    before = {
        "dk": 64,
        "vocabulary_size": 97,
        "stored_fields": ("title", "text"),
        "text_fields": ("text",),
        "attributes": (),
        "average_length": None,
        "analyzer": "english",
    }
    assert LAYOUT.identity() == before


def test_shard_name_depends_on_the_digest_of_text_terms() -> None:
    counted = replace(LAYOUT, text_terms="a" * 64)
    assert counted.identity() == asdict(counted)
    assert counted.identity() != replace(LAYOUT, text_terms="b" * 64).identity() != LAYOUT.identity()


def test_shard_name_depends_on_the_analyzer() -> None:
    assert (
        replace(LAYOUT, analyzer="bigrams").identity()
        == {**LAYOUT.identity(), "analyzer": "bigrams"}
        != LAYOUT.identity()
    )
