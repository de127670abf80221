import inspect
import re

from lsr_prod import errors


def _drawn() -> dict[str, str]:
    """Class -> parent as the module's docstring draws them."""
    parents: dict[int, str] = {-1: "Exception"}
    drawn: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^    ([│├└─ ]*)(\w*Error)\b", line):
            depth = len(match[1]) // 4
            drawn[match[2]] = parents[depth - 1]
            parents[depth] = match[2]
    return drawn


def test_docstring_draws_the_exception_tree() -> None:
    classes = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    assert _drawn() == {name: value.__bases__[0].__name__ for name, value in classes.items()}
    assert sorted(classes) == sorted(errors.__all__)


def test_query_error_is_a_value_error() -> None:
    assert issubclass(errors.QueryError, ValueError)


def test_config_error_message_has_field_problem_and_remedy() -> None:
    error = errors.ConfigError("encode.actors", "0 is not possible", "give at least 1")
    assert str(error) == "encode.actors: 0 is not possible; give at least 1"
