"""Find the mutants of a module, and compile one of them.

A mutant changes one function. Its name is the function, what is changed, and the text of the changed code as Python
prints it: moved lines and new comments change no name.

The operators: a condition is negated; a guard (an ``if`` without its body, a condition of a comprehension) is removed;
an operand of ``and`` or ``or`` is removed; a ``raise``, a ``yield`` or a call without a result is removed; an element
of a returned tuple becomes ``None``. Messages are not mutated: neither calls of ``log`` nor code inside of a ``raise``.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

__all__ = ["Mutant", "find_mutants", "functions_of", "mutated_code"]

_WIDTH = 100
_Change = tuple[str, ast.AST, ast.expr | ast.stmt, int]  # operator, node to change, code to show, operand


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one function.

    Attributes:
        file: path of the module below ``lsr_prod``.
        function: qualified name of the function, with the functions that it is nested in.
        change: what is changed: the operator, and the code before the change.
        outer: qualified name and first line of the outermost function, whose code object has the change.
        lines: first and last line of the changed code, for the tests that execute it.
        node: place of the changed node in the order of ``ast.walk``.
        operand: place of the removed operand or element; -1: the operator changes the whole node.
    """

    file: str
    function: str
    change: str
    outer: tuple[str, int]
    lines: tuple[int, int]
    node: int
    operand: int = -1

    @property
    def name(self) -> str:
        """Module, function and change."""
        return f"{self.file} {self.function}: {self.change}"


def find_mutants(root: Path, file: str) -> list[Mutant]:
    """Return the mutants of a module in the order of its code.

    Args:
        root: folder of the package.
        file: path of the module below it.
    """
    tree = ast.parse((root / file).read_text())
    numbers = {node: number for number, node in enumerate(ast.walk(tree))}
    seen: Counter[tuple[str, str]] = Counter()
    mutants = []
    for function, outer, (operator, node, shown, operand) in _changes(tree, "", None):
        change = f"{operator} {_short(shown)}"
        seen[function, change] += 1
        if (count := seen[function, change]) > 1:
            change = f"{change} ({count})"
        lines = (shown.lineno, shown.end_lineno or shown.lineno)
        mutants.append(Mutant(file, function, change, outer, lines, numbers[node], operand))
    return mutants


def mutated_code(root: Path, mutant: Mutant) -> CodeType:
    """Compile a module with a mutant, and return the code of the outermost function that has it."""
    path = root / mutant.file
    tree = ast.parse(path.read_text())
    node = list(ast.walk(tree))[mutant.node]
    _replace(tree, node, _changed(node, mutant))
    module = compile(ast.fix_missing_locations(tree), str(path), "exec")
    return next(code for code in functions_of(module) if (code.co_qualname, code.co_firstlineno) == mutant.outer)


def functions_of(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects of the functions and classes of a module."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from functions_of(constant)


def _changes(node: ast.AST, name: str, outer: tuple[str, int] | None) -> Iterator[tuple[str, tuple[str, int], _Change]]:
    """Yield the changes of the functions below a node, each with its function and the outermost function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            inner = f"{name}.{child.name}" if name else child.name
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            start = (inner, first) if isinstance(child, ast.FunctionDef) else None
            yield from _changes(child, inner, outer or start)
            continue
        if outer:
            yield from ((name, outer, change) for change in _of_node(child))
        if not isinstance(child, ast.Raise) and not _is_log(child):
            yield from _changes(child, name, outer)


def _of_node(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.If(test=test, body=body) | ast.While(test=test, body=body) if not isinstance(test, ast.Constant):
            yield "negate", test, test, -1
            # Without its only statement, a ``raise``, the guard does nothing: that mutant is the removal of the raise.
            if isinstance(node, ast.If) and not (len(body) == 1 and isinstance(body[0], ast.Raise) and not node.orelse):
                yield "never", node, test, -1
        case ast.IfExp(test=test) | ast.match_case(guard=ast.expr() as test):
            yield "negate", test, test, -1
        case ast.comprehension(ifs=ifs):
            for place, test in enumerate(ifs):
                yield "negate", test, test, -1
                yield "always", node, test, place
        case ast.BoolOp(values=values):
            for place, value in enumerate(values):
                yield f"from {ast.unparse(node)} remove", node, value, place
        case ast.Raise():
            yield "remove", node, node, -1
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) if not _is_log(node):
            yield "remove", node, node, -1
        case ast.Return(value=ast.Tuple(elts=elements)):
            for place, element in enumerate(elements):
                if not isinstance(element, ast.Constant):
                    yield "return None for", node, element, place


def _is_log(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return True
    return False


def _changed(node: ast.AST, mutant: Mutant) -> ast.AST:
    operator = mutant.change.partition(" ")[0]
    match node:
        case ast.If() if operator == "never":
            return ast.If(ast.Constant(False), node.body, node.orelse)
        case ast.comprehension():
            ifs = [ast.Constant(True) if place == mutant.operand else test for place, test in enumerate(node.ifs)]
            return ast.comprehension(node.target, node.iter, ifs, node.is_async)
        case ast.BoolOp() if operator == "from":
            values = [value for place, value in enumerate(node.values) if place != mutant.operand]
            return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)
        case ast.Return(value=ast.Tuple(elts=elements)):
            blank = [ast.Constant(None) if place == mutant.operand else each for place, each in enumerate(elements)]
            return ast.Return(ast.Tuple(blank, ast.Load()))
        case ast.Raise() | ast.Expr():
            # The removed code stays as dead code: the function keeps its free variables.
            return ast.If(ast.Constant(False), [node], [])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.expr():
            return ast.UnaryOp(ast.Not(), node)
    raise ValueError(f"{mutant.name} changes {ast.dump(node)}")


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    if isinstance(old, ast.expr | ast.stmt):
        ast.copy_location(new, old)
    for node in ast.walk(tree):
        if node is new:
            continue
        for name, value in ast.iter_fields(node):
            if value is old:
                setattr(node, name, new)
                return
            if isinstance(value, list) and any(each is old for each in value):
                value[:] = [new if each is old else each for each in value]
                return


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return f"raise {ast.unparse(node.exc.func)}"  # its message is no behavior
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"
