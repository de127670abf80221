"""Reader of YAML files that refuses what PyYAML accepts in silence: a key that is given twice."""

from pathlib import Path
from typing import Any

import yaml

from lsr_prod.errors import ConfigError

__all__ = ["read_yaml"]

_LARGEST = 1_000_000  # bytes; a deployment has some thousands


class _Loader(yaml.SafeLoader):
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


def read_yaml(field: str, path: Path) -> Any:
    """Return the value of a YAML file.

    Args:
        field: the option that names the file, for messages.
        path: the file.

    Raises:
        ConfigError: it is no file, too large, or no YAML, or it gives a key twice.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise ConfigError(field, f"{path} has {size:,} bytes", f"give a file of {_LARGEST:,} bytes or less")
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ConfigError(field, f"{path} cannot be read ({error.strerror})", "give a YAML file") from error
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise ConfigError(field, f"{path} is not YAML ({' '.join(str(error).split())})", "fix the file") from error
