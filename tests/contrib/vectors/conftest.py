"""A bundle whose vocabulary is difficult for text formats."""

from pathlib import Path

import pytest

from lsr_prod_contrib.vectors import Rules, Vocabulary
from tests.indexing.corpus import make_bundle

TERMS = ("lock", "##ing", "naïve", "数据", "🙂", "e\u0301", "\u2028", "\u3000", '"', "\\", "a,b", "[unused1]", "0", "Ω")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interchange") / "bundle"
    make_bundle(folder, TERMS)
    return folder


@pytest.fixture(scope="session")
def vocabulary(bundle: Path) -> Vocabulary:
    return Vocabulary.load(bundle)


@pytest.fixture(scope="session")
def rules(vocabulary: Vocabulary) -> Rules:
    return Rules(vocabulary)
