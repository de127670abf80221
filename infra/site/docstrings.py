"""Extension of griffe: defaults and descriptions of settings, and literal blocks of docstrings as Markdown."""

import ast
import re
from typing import Any

import griffe

_LITERAL = re.compile(r"^( *)::$|::$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Show the default of a setting without its ``Field``, and turn ``::`` into what Markdown reads."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Read the default of a setting, and escape its description."""
        if attr.docstring is None or not attr.path.startswith("lsr_prod.config."):
            return
        attr.docstring.value = attr.docstring.value.replace("<", "&lt;")
        call = getattr(node, "value", None)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Field":
            attr.value = ast.unparse(call.args[0]) if call.args else None

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Write literal blocks as Markdown: a paragraph ``::`` disappears, ``text::`` ends with one colon."""
        if obj.docstring is not None:
            obj.docstring.value = _LITERAL.sub(lambda match: "" if match[1] is not None else ":", obj.docstring.value)
