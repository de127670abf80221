import hashlib

from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.storage.formats.digests import canonical_json


def test_key_is_64_bits_of_the_identity_in_any_folder():
    file = SourceFile("/corpus", "lang=de/a.parquet", "parquet", 7, "tag", (("lang", "de"),))
    digest = hashlib.sha256(canonical_json(file.identity())).digest()
    assert file.key == int.from_bytes(digest[:8], "big", signed=True)
    assert -(2**63) <= file.key < 2**63
    assert SourceFile("s3://b", "x/a.parquet", "parquet", 7, "tag", (("lang", "de"),)).key == file.key
    others = [
        SourceFile("/corpus", "lang=de/b.parquet", "parquet", 7, "tag", (("lang", "de"),)),
        SourceFile("/corpus", "lang=de/a.parquet", "parquet", 8, "tag", (("lang", "de"),)),
        SourceFile("/corpus", "lang=de/a.parquet", "parquet", 7, "gat", (("lang", "de"),)),
        SourceFile("/corpus", "lang=de/a.parquet", "parquet", 7, "tag", (("lang", None),)),
        SourceFile("/corpus", "lang=de/a.parquet", "arrow", 7, "tag", (("lang", "de"),)),
    ]
    assert len({other.key for other in others} | {file.key}) == 6
