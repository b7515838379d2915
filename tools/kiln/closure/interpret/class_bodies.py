"""What can be read off a class of the project: the interpreter runs the body, as far as that needs no run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kiln.closure import scope
from kiln.closure.interpret.values import ClassValue, Frame, Raised, Undecided

if TYPE_CHECKING:
    from kiln.closure.interpret.interpreter import Interpreter


class ClassBodies:
    """The classes of one run of the interpreter; what is found is kept."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._nodes: dict[ClassValue, ast.ClassDef] = {}
        self._frames: dict[ClassValue, Frame] = {}

    def define(self, node: ast.ClassDef, frame: Frame) -> ClassValue:
        """The value of a class statement at module level."""
        value = ClassValue(module=frame.module, name=node.name)
        if self._nodes.setdefault(value, node) is not node:
            raise Undecided(f"{node.name} is defined more than once", frame.module.position(node))
        return value

    def attribute(self, owner: ClassValue, name: str) -> object:
        """An attribute that the body of a class gives, or that of the class which it is derived from."""
        node = self._nodes[owner]
        if name.startswith("__") or name == "mro":
            raise Undecided(f"the attribute {name!r} of a class is not followed")
        frame = self._frame(owner, node)
        if name in frame.unknown:
            raise Undecided(f"{owner.name}.{name} is not known before the run")
        if name in frame.names:
            return frame.names[name]
        for base in self._bases(owner, node):
            return self._interpreter.attribute(base, name)
        raise Raised(AttributeError, f"{owner.name} has no {name!r}")

    def _bases(self, owner: ClassValue, node: ast.ClassDef) -> list[ClassValue]:
        with self._interpreter.standing_at(owner.module, node):
            values = [self._interpreter.expressions.value(base, Frame(module=owner.module)) for base in node.bases]
        found = [value for value in values if isinstance(value, ClassValue)]
        if len(found) != len(values) or len(found) > 1:
            bases = ", ".join(map(ast.unparse, node.bases))
            raise Undecided(f"what {owner.name} has from {bases} is not followed", owner.module.position(node))
        return found

    def _frame(self, owner: ClassValue, node: ast.ClassDef) -> Frame:
        """The names of a class when its body has run; those that cannot be told are unknown."""
        if owner in self._frames:
            return self._frames[owner]
        if node.decorator_list or node.keywords:
            raise Undecided(f"the class {owner.name} is made in a way that is not followed")
        for base in self._bases(owner, node):
            if "__init_subclass__" in self._frame(base, self._nodes[base]).unknown:
                raise Undecided(f"what {base.name} does to the classes derived from it is not followed")
        frame = Frame(module=owner.module, is_class=True)
        with self._interpreter.standing_at(owner.module, node):
            for statement in node.body:
                self._run(statement, frame)
        self._interpreter.share(tuple(frame.names.values()))
        self._frames[owner] = frame
        return frame

    def _run(self, statement: ast.stmt, frame: Frame) -> None:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return
        binds = scope.binds(statement)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            decorators = [ast.unparse(item) for item in statement.decorator_list]
            if isinstance(statement, ast.FunctionDef) and decorators == ["staticmethod"]:
                frame.names[statement.name] = self._interpreter.expressions.function(statement, frame)
                frame.unknown -= binds
            else:
                frame.unknown |= binds
            return
        if any(isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)) for node in ast.walk(statement)):
            raise Undecided("a definition inside a statement of a class is not followed")
        try:
            self._interpreter.statements.statement(statement, frame)
        except (Undecided, Raised):
            # What cannot be told, and does nothing besides, need not be told unless it is asked for.
            calls = any(isinstance(node, (ast.Call, ast.NamedExpr)) for node in ast.walk(statement))
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            is_plain = isinstance(statement, (ast.Assign, ast.AnnAssign))
            if calls or not is_plain or not all(isinstance(target, ast.Name) for target in targets):
                raise
            frame.unknown |= binds
        else:
            frame.unknown -= binds
