"""Reader of YAML files that refuses keys that are given twice, and aliases that repeat too much."""

from pathlib import Path
from typing import Any

import yaml

from lsr_prod.errors import ConfigError

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
            if name in seen:
                line = key.start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name!r} is given twice, again in line {line}"
                )
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
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise ConfigError(field, f"{path} is not YAML ({' '.join(str(error).split())})", "fix the file") from error
