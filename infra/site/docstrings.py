"""Extension of griffe: descriptions of settings, and literal blocks of docstrings as Markdown."""

import ast
import re
from typing import Any

import griffe

_LITERAL = re.compile(r"^( *)::$|::$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Give settings the description of their ``Field`` as docstring, and turn ``::`` into what Markdown reads."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Read description and default of a setting."""
        if attr.docstring is None and isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
            for keyword in node.value.keywords:
                if keyword.arg == "description" and isinstance(keyword.value, ast.Constant):
                    text = str(keyword.value.value).replace("<", "&lt;")
                    attr.docstring = griffe.Docstring(text, parent=attr)
                    attr.value = ast.unparse(node.value.args[0]) if node.value.args else None

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Write literal blocks as Markdown: a paragraph ``::`` disappears, ``text::`` ends with one colon."""
        if obj.docstring is not None:
            obj.docstring.value = _LITERAL.sub(lambda match: "" if match[1] is not None else ":", obj.docstring.value)
