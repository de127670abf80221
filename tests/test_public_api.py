import subprocess
import sys

import lsr_prod

PUBLIC = ["ConfigError", "Hit", "Index", "LsrError", "QueryError", "SearchResult", "Searcher", "SparseEncoder"]
METHODS = [
    "bm25",
    "close",
    "count",
    "document_frequencies",
    "document_frequency",
    "documents",
    "encode",
    "encoder",
    "explain",
    "follow",
    "get",
    "match_boolean",
    "match_terms",
    "open",
    "postings",
    "publication",
    "refresh",
    "search",
    "search_arrays",
    "search_async",
    "search_batch",
    "search_vector",
    "snapshot",
    "version",
    "vocabulary",
    "warm",
]


def test_public_names_are_listed_and_load() -> None:
    assert lsr_prod.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(lsr_prod, name).__name__ == name


def test_public_methods_of_a_searcher_are_listed_and_documented() -> None:
    assert [name for name in dir(lsr_prod.Searcher) if not name.startswith("_")] == METHODS
    assert all(getattr(lsr_prod.Searcher, name).__doc__ for name in METHODS)


def test_unknown_name_raises_attribute_error() -> None:
    assert not hasattr(lsr_prod, "Sercher")


def test_import_of_package_loads_neither_numpy_nor_ray_nor_torch() -> None:
    code = "import lsr_prod, sys; print(sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'ray', 'torch'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_index_of_words_needs_neither_extras_nor_onnxruntime() -> None:
    code = """
import sys
for name in ("cryptography", "deltalake", "obstore", "onnxruntime", "pydantic", "ray", "rich", "torch", "yaml"):
    sys.modules[name] = None
import lsr_prod
print([hit.doc_id for hit in lsr_prod.Index.from_texts(["a lock", "a date"]).search("date").hits])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['1']"


def test_name_of_an_extra_that_is_absent_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import lsr_prod; lsr_prod.SparseEncoder"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = "MissingExtraError: torch is not installed; install it with: pip install 'lsr_prod[train]'"
    assert done.stderr.strip().endswith(expected)
