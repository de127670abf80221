"""The difficult vocabulary of the tests of other formats."""

from tests.encoding.interchange.conftest import bundle, rules, vocabulary

__all__ = ["bundle", "rules", "vocabulary"]
