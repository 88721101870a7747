"""Mutations of Python source that a user would notice. Each changes one expression or removes one statement."""

import ast
import copy
import dataclasses
from collections.abc import Iterator

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
}
# Calls whose first two arguments can be swapped without effect, or whose swapped call always fails.
_NOT_SWAPPED = {"isinstance", "issubclass", "getattr", "setattr", "hasattr", "max", "min"}
_LARGEST = 2  # larger numbers are sizes and times, for which neighbouring numbers work as well


@dataclasses.dataclass(frozen=True)
class Mutation:
    """The kind of a change, its line number, and the changed source."""

    kind: str
    line: int
    source: str


def mutations(source: str) -> Iterator[Mutation]:
    """Yields all mutations of a module, in the order of the syntax tree."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _mutable_nodes(ast.parse(source)):
        for kind, text in _changes(node):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            changed = source.encode()[:begin] + text.encode() + source.encode()[end:]
            yield Mutation(kind, node.lineno, changed.decode())


def _mutable_nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yields the nodes that a mutation may change, without annotations, messages, docstrings and f-strings."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases", "msg"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom) or not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            if not isinstance(child, ast.Raise):
                yield from _mutable_nodes(child)


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """Yields the kind and the new text of each change of a node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "comparison", _unparse_changed(node, ops=[_COMPARISONS[type(node.ops[0])]()])
    elif isinstance(node, ast.BoolOp):
        yield "and, or", _unparse_changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", ast.unparse(node.operand)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield "constant", str(not node.value)
        elif isinstance(node.value, int) and node.value <= _LARGEST:
            yield "constant", str(node.value + 1)
    elif isinstance(node, ast.Return):
        if not (node.value is None or isinstance(node.value, ast.Constant)):
            yield "returned value", "return None"
    elif isinstance(node, ast.Call):
        if _can_swap(node):
            yield "order of arguments", _unparse_changed(node, args=[node.args[1], node.args[0], *node.args[2:]])
    elif _can_be_removed(node):
        yield "missing statement", "pass"


def _unparse_changed(node: ast.expr, **changes: object) -> str:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return f"({ast.unparse(changed)})" if isinstance(node, ast.Compare | ast.BoolOp) else ast.unparse(changed)


def _can_swap(call: ast.Call) -> bool:
    is_plain = len(call.args) > 1 and not any(isinstance(argument, ast.Starred) for argument in call.args[:2])
    return is_plain and ast.unparse(call.func) not in _NOT_SWAPPED


def _can_be_removed(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and "logg" not in ast.unparse(node.value.func).lower()
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break)
