"""Load a deployment from a YAML file and the command line; every problem is reported in one line."""

import argparse
import difflib
from collections.abc import Sequence
from copy import copy
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from lsr_prod.config import evaluate, training
from lsr_prod.config.deployment import Deployment
from lsr_prod.config.section import DataSetSettings
from lsr_prod.errors import ConfigError
from lsr_prod.logs import without_credentials

_LARGEST = 1_000_000  # bytes; a deployment has some thousands
_MOST_VALUES = 100_000  # with those of aliases


class _Loader(yaml.SafeLoader):
    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _count_values(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str) or name in seen:
                twice = f"the key {name} is given twice"
                problem = twice if isinstance(name, str) else "a key is no text; write it in quotes"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def _count_values(node: yaml.Node, counted: dict[int, int]) -> int:
    """Return the number of values below a node; a value counts as often as aliases repeat it."""
    if id(node) in counted:
        if not counted[id(node)]:
            raise yaml.composer.ComposerError(None, None, "an alias stands inside of its own anchor", node.start_mark)
        return counted[id(node)]
    counted[id(node)], total = 0, 1
    if isinstance(node, yaml.MappingNode):
        total += sum(_count_values(part, counted) for pair in node.value for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        total += sum(_count_values(part, counted) for part in node.value)
    if total > _MOST_VALUES:
        raise yaml.composer.ComposerError(None, None, f"aliases make more than {_MOST_VALUES:,} values of it")
    counted[id(node)] = total
    return total


def read_yaml(field: str, path: Path) -> Any:
    """Return the value of a YAML file."""
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise ConfigError(field, f"{path} has {size:,} bytes", f"give a file of {_LARGEST:,} bytes or less")
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ConfigError(field, f"{path} cannot be read ({error.strerror})", "give a YAML file") from error
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise ConfigError(field, f"{path} is not YAML ({_yaml_problem(error)})", "fix the file") from error


def _yaml_problem(error: Exception) -> str:
    """Return what is wrong with a YAML file, without its text: that may be a credential."""
    if isinstance(error, AttributeError | LookupError):
        return "a value does not have the form of its tag"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    problem = str(error.problem)
    if "undefined" in problem or "constructor" in problem:  # it ends with the name of an alias or a tag
        problem = problem.partition(" '")[0]
    return f"line {error.problem_mark.line + 1}: {problem}"


_KINDS = {**training.STAGES, **evaluate.SYSTEMS}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


class _CommandLine(CliSettingsSource[Any]):
    def _merge_parsed_list(self, parsed_list: list[str], field_name: str) -> str:
        merged = super()._merge_parsed_list(parsed_list, field_name)
        texts = [text for text in parsed_list if isinstance(text, str) and text.strip()[:1] != "["]
        if merged.startswith("[") and any(text != text.strip() for text in texts):
            problem = "an item of a list loses blanks at its ends on the command line"
            raise ConfigError(field_name, problem, """write the list as JSON, for example '[" "]'""")
        return merged


class _Settings(BaseSettings, Deployment):
    model_config = SettingsConfigDict(
        cli_exit_on_error=False, cli_avoid_json=True, cli_hide_none_type=True, nested_model_default_partial_update=True
    )

    @classmethod
    def settings_customise_sources(cls, *_: Any, **given: Any) -> tuple[PydanticBaseSettingsSource, ...]:
        # Sources are given, in place of the environment; a class with sources of its own would be built for every call.
        sources: tuple[PydanticBaseSettingsSource, ...] = given["init_settings"].init_kwargs["sources"]
        return sources


def load_deployment(
    argv: Sequence[str],
    *,
    job: str,
    description: str,
    needs: Sequence[str],
    optional: Sequence[str] = (),
    options: argparse.ArgumentParser | None = None,
) -> Deployment:
    """Read the files given with ``--config`` and the overrides, and validate all before any work.

    ``--config`` may be given several times: a field of a later file replaces that of an earlier one, so that a patch
    with some fields can follow a whole deployment. A list is replaced as a whole.

    Args:
        argv: the command line without the program's name.
        job: the program's name for ``--help`` and messages.
        description: first lines of ``--help``.
        needs: sections that the job requires.
        optional: sections that the job reads if they are given.
        options: further options that may stand in ``argv``; the caller parses them.

    Raises:
        ConfigError: a key is unknown, a value is invalid, or a required section is missing.
    """
    known = _Parser(add_help=False, allow_abbrev=False)
    known.add_argument("--config", type=Path, action="append", default=[])
    _, command_line = settings_parser(job, description, (*needs, *optional), options)

    try:
        paths: list[Path] = known.parse_known_args(argv)[0].config
        files = [InitSettingsSource(_Settings, _read_yaml(path)) for path in reversed(paths)]
        # A source keeps what it has parsed: other threads of the process have the same one.
        sources: dict[str, Any] = {"sources": (copy(command_line)(args=list(argv)), *files)}
        deployment = _Settings(**sources)
    except SettingsError as error:
        raise _unknown_argument(str(error)) from error
    except ValidationError as error:
        raise _first_problem(error) from error
    for section in needs:
        if getattr(deployment, section) is None:
            problem = "this section is missing"
            raise ConfigError(section, problem, f"{job} reads it; add it to the file given with --config")
    return deployment


@cache
def settings_parser(
    job: str, description: str, sections: tuple[str, ...], options: argparse.ArgumentParser | None = None
) -> tuple[argparse.ArgumentParser, CliSettingsSource[Any]]:
    """Return the parser of a job's command line, and the source that reads settings with it.

    The parser accepts the fields of every section; ``--help`` describes those of ``sections``, ``ray`` and ``storage``.
    A process makes each parser once: it has an argument for every setting.
    """
    parser = _Parser(
        prog=job,
        usage="%(prog)s --config FILE [--SECTION.FIELD VALUE ...]" + (" [OPTIONS]" if options else ""),
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[options] if options else [],
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        action="append",
        default=None,
        help="YAML file of the deployment; given again, a file whose fields replace those of the files before it",
    )
    source = _CommandLine(_Settings, root_parser=parser)
    described = {"ray", "storage", *sections}
    for group in parser._action_groups:
        for action in group._group_actions:
            section, dot, _ = action.dest.partition(".")
            if dot and section not in described:
                action.help, group.description = argparse.SUPPRESS, None
    return parser, source


def _read_yaml(path: Path) -> dict[str, Any]:
    value = read_yaml("--config", path)
    if not isinstance(value, dict):
        raise ConfigError("--config", f"{path} has no sections", f"give some of: {', '.join(Deployment.model_fields)}")
    return value


def _unknown_argument(message: str) -> ConfigError:
    texts = message.rpartition("unrecognized arguments:")[2].split() if "unrecognized" in message else []
    name = next((name for text in texts if (name := text.lstrip("-").partition("=")[0])), None)
    if name is None:
        return ConfigError("command line", " ".join(message.split()), "see --help")
    return ConfigError(name, "there is no such setting", _suggest(name.split(".")))


def _first_problem(error: ValidationError) -> ConfigError:
    problem, *others = error.errors(include_url=False)
    location = [str(part) for part in problem["loc"]]
    message = problem["msg"]
    number = location[-1:] in (["float"], ["constrained-float"])
    if number and others and others[0]["loc"][:-1] == problem["loc"][:-1]:  # a number, or a word
        location.pop()
        message = f"{message}, or {others[0]['msg'].lower()}"
    field = ".".join(_without_kinds(location))
    if problem["type"] == "extra_forbidden":
        return ConfigError(field, "there is no such setting", _suggest(location))
    if problem["type"] == "union_tag_invalid":
        name = problem["ctx"]["discriminator"].strip("'")
        wanted = problem["ctx"]["expected_tags"].replace("'", "")
        return ConfigError(f"{field}.{name}", f"{problem['ctx']['tag']!r} is not possible", f"use one of {wanted}")
    if problem["type"] == "missing":
        return ConfigError(field, "it is required, but was not given", f"set it in the file or as --{field} VALUE")
    message = message.removeprefix("Value error, ")
    # The value may be a credential by mistake: never repeat it.
    value = "the value" if field.startswith("storage") else _show(problem["input"])
    return ConfigError(field, f"{value} is not possible", message[0].lower() + message[1:])


def _show(value: Any) -> str:
    return "the section" if isinstance(value, dict | BaseModel) else without_credentials(repr(value))


def _suggest(location: Sequence[str]) -> str:
    model: type[BaseModel] = Deployment
    for before, part in pairwise(["", *location[:-1]]):
        if before.isdigit() and part in _KINDS:
            model = _KINDS[part]
        if part == "sets":
            model = DataSetSettings
        field = model.model_fields.get(part)  # None: the index of a list item
        model = _section_model(field.annotation) or model if field else model
    names = list(model.model_fields)
    close = difflib.get_close_matches(location[-1], names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"available: {', '.join(names)}"


def _without_kinds(location: Sequence[str]) -> list[str]:
    """Return the path of a setting without the parts that pydantic adds: the kind of a list item, the form of data."""
    kept = []
    for before, part in pairwise(["", *location]):
        kind_of_item = before.isdigit() and part in _KINDS
        form_of_data = before == "data" and part in ("set", "sets")
        if not kind_of_item and not form_of_data:
            kept.append(part)
    return kept


def _section_model(annotation: Any) -> type[BaseModel] | None:
    """Return the section type of a field: alone, in a list, or in a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _section_model(one))), None)
