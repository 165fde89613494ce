"""The repository's code as names: what each function, class and constant names, read from its source without
running it.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("vcdl", "tests", "benchmarks")
"""Code of ours; every other module is known by its dotted name only."""


class Name(NamedTuple):
    """A function, class or constant of a module; the module itself when `symbol` is empty."""

    module: str
    symbol: str = ""

    def __str__(self) -> str:
        return f"{self.module}.{self.symbol}" if self.symbol else self.module


@dataclass
class Code:
    """What a piece of code names: symbols, and attributes of whatever. A class's methods are code of their own."""

    names: set[Name] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    methods: dict[str, "Code"] = field(default_factory=dict)


class Module:
    """The top level of a module of ours."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        self.imports: dict[str, Name] = {}
        """Local names that the module's import statements bind."""
        self.symbols: dict[str, list[ast.AST]] = {}
        """The syntax behind every other name."""
        self._read(ast.parse(path.read_text(encoding="utf-8")).body)

    def _read(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.Import() | ast.ImportFrom():
                    self.imports |= self.bound_by(statement)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._add(statement.name, statement)
                    for decorator in statement.decorator_list:  # `@group.command()`: the group knows it from now on
                        self._extend(decorator, ast.Name(statement.name, ast.Load()))
                case ast.Assign(targets=targets, value=value):
                    for node in (node for target in targets for node in ast.walk(target)):
                        if isinstance(node, ast.Name):
                            self._add(node.id, value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._add(name, value)
                case ast.Expr(value=ast.Call(func=function) as call):
                    self._extend(function, call)
                case ast.If(test=test) if "TYPE_CHECKING" in ast.dump(test):
                    pass
                case ast.If() | ast.Try() | ast.With() | ast.For():
                    for part in ("body", "orelse", "finalbody", "handlers"):
                        for inner in getattr(statement, part, ()):
                            self._read(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])

    def _add(self, name: str, syntax: ast.AST) -> None:
        self.symbols.setdefault(name, []).append(syntax)

    def _extend(self, caller: ast.expr, syntax: ast.AST) -> None:
        """Count syntax as part of the symbol whose method is called with it."""
        while isinstance(caller, ast.Attribute | ast.Call):
            caller = caller.value if isinstance(caller, ast.Attribute) else caller.func
        if isinstance(caller, ast.Name) and caller.id in self.symbols:
            self.symbols[caller.id].append(syntax)

    def bound_by(self, statement: ast.Import | ast.ImportFrom) -> dict[str, Name]:
        """The local names that an import statement binds."""
        if isinstance(statement, ast.Import):
            names = [(alias.asname, alias.name) for alias in statement.names]
            return {given or name.split(".")[0]: Name(name if given else name.split(".")[0]) for given, name in names}
        parents = self._package.split(".")
        above = parents[: len(parents) - statement.level + 1] if statement.level else []
        base = ".".join([*above, *filter(None, [statement.module])])
        return {alias.asname or alias.name: Name(base, alias.name) for alias in statement.names}


class Source:
    """The modules of the repository, each read when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, Module | None] = {}
        self._code: dict[Name, Code] = {}
        self._imported_with: dict[str, set[str]] = {}

    def module(self, name: str) -> Module | None:
        """A module of ours, None when it is none."""
        if name not in self._modules:
            path = self._root.joinpath(*name.split("."))
            found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
            ours = found and name.split(".")[0] in PACKAGES
            self._modules[name] = Module(name, found[0]) if ours else None
        return self._modules[name]

    def resolve(self, name: Name) -> Name:
        """The place where a name is defined; a name from elsewhere is left as it is."""
        module = self.module(name.module)
        if module is None or not name.symbol or name.symbol in module.symbols:
            return name
        imported = module.imports.get(name.symbol, name)
        if imported != name:  # a package may import a module of its own by the package's name
            return self.resolve(imported)
        inner = str(name)
        return Name(inner) if self.module(inner) else Name(name.module)

    def code(self, name: Name) -> Code:
        """What a symbol of ours names; nothing for a whole module and for what is not ours."""
        if name not in self._code:
            self._code[name] = code = Code()
            if module := self.module(name.module):
                reader = _Reader(self, module, code)
                for syntax in module.symbols.get(name.symbol, ()):
                    reader.visit(syntax)
        return self._code[name]

    def imported_with(self, name: str) -> set[str]:
        """Every module that is loaded when a module is, from elsewhere too."""
        if name in self._imported_with:
            return self._imported_with[name]
        loaded: set[str] = set()
        self._imported_with[name] = loaded
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name not in loaded:
                loaded.add(name)
                waiting += filter(None, [name.rpartition(".")[0]])
                if module := self.module(name):
                    waiting += (part for target in module.imports.values() for part in (target.module, str(target)))
        return loaded


class _Reader(ast.NodeVisitor):
    """Collects what syntax names. Annotations are left out: naming a type there uses nothing of it."""

    def __init__(self, source: Source, module: Module, code: Code) -> None:
        self._source, self._module, self._code = source, module, code
        self._imports: dict[str, Name] = {}
        """What import statements inside of functions bind."""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(part)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and not self._is_called_unnamed(statement):
                method = self._code.methods.setdefault(statement.name, Code())
                _Reader(self._source, self._module, method).visit(statement)
            else:
                self.visit(statement)

    def _is_called_unnamed(self, method: ast.FunctionDef) -> bool:
        """Python calls `__enter__`, and hypothesis the rules of a state machine."""
        if method.name.startswith("__") and method.name.endswith("__"):
            return True
        of_decorators = Code()
        for decorator in method.decorator_list:
            _Reader(self._source, self._module, of_decorators).visit(decorator)
        return any(str(name).startswith("hypothesis.stateful") for name in of_decorators.names)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for statement in ast.walk(node):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self.visit(statement)
        defaults = (*node.args.defaults, *filter(None, node.args.kw_defaults))
        for part in (*node.decorator_list, *defaults, *node.body):
            self.visit(part)

    def visit_Import(self, node: ast.Import) -> None:
        self._bind(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._bind(node)

    def _bind(self, node: ast.Import | ast.ImportFrom) -> None:
        bound = self._module.bound_by(node)
        self._imports |= bound
        self._code.names.update(self._source.resolve(name) for name in bound.values())

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        self._add(node.id, [])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        attributes, of = [node.attr], node.value
        while isinstance(of, ast.Attribute):
            attributes.insert(0, of.attr)
            of = of.value
        if isinstance(of, ast.Name):
            self._add(of.id, attributes)
        else:
            self._code.attributes.update(attributes)
            self.visit(of)

    def _add(self, head: str, attributes: list[str]) -> None:
        """Take a chain like `module.Class.method` as far as names go; what is left are attributes of an object."""
        found = self._imports.get(head) or self._module.imports.get(head)
        if head in self._module.symbols:
            found = Name(self._module.name, head)
        if found is not None:
            found = self._source.resolve(found)
            while attributes and (not found.symbol or not self._source.module(found.module)):
                found = self._source.resolve(_inside(found, attributes[0]))
                attributes = attributes[1:]
            self._code.names.add(found)
        self._code.attributes.update(attributes)


def _inside(name: Name, attribute: str) -> Name:
    return Name(str(name), attribute)
