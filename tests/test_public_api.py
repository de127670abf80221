import subprocess
import sys

import lsr_prod

PUBLIC = ["ConfigError", "Hit", "Index", "LsrError", "QueryError", "SearchResult", "Searcher", "SparseEncoder"]


def test_public_names_are_listed_and_load() -> None:
    assert lsr_prod.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(lsr_prod, name).__name__ == name


def test_unknown_name_raises_attribute_error() -> None:
    assert not hasattr(lsr_prod, "Sercher")


def test_import_of_package_loads_neither_numpy_nor_ray_nor_torch() -> None:
    code = "import lsr_prod, sys; print(sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'ray', 'torch'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_index_without_the_extra_jobs_says_what_to_install() -> None:
    code = "import sys; sys.modules['pydantic'] = None; import lsr_prod; lsr_prod.Index"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = "MissingExtraError: pydantic is not installed; install it with: pip install 'lsr_prod[jobs]'"
    assert done.stderr.strip().endswith(expected)
