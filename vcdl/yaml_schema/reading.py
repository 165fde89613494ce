"""Read a YAML file as plain values with the line of every key, and report what is wrong with it.

A place is a tuple such as `("training", "metrics", 0)`; messages show it as `training > metrics > 1`.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from vcdl.errors import JobError, without_passwords
from vcdl.yaml_schema.file_kind import FileKind, mistaken_for

MAX_SIZE_BYTES = 1 << 20
"""Largest file that is read. Files of VCDL have some 2 KiB: a larger one is something else, given by mistake."""
MAX_SHOWN = 20
"""Problems listed before "and N more"."""

_HALF = "half of an escaped character (\\ud800 to \\udfff alone); write the character itself"

Place = tuple[str | int, ...]

# Words and numbers are recognised as in YAML 1.2, not as in PyYAML's 1.1: 1e-3 is a number; `on`, 1:30 and 2024-01-01
# are text; 010 is ten.
_RESOLVERS = (
    ("tag:yaml.org,2002:null", re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"[-+]?([0-9]{1,3}(_[0-9]{3}){1,5}|[0-9]{1,18})"), list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?"),
        list("-+.0123456789"),
    ),
)


class Problem(NamedTuple):
    """One mistake of a user: the place in the file and a message that continues `line: place:`."""

    at: Place
    message: str
    line: int | None = None
    """The line, counted from 1; None: the line of `at`."""


class ProblemsError(ValueError):
    """Raised by a validator for all problems of one value, with places relative to that value.

    `report` needs places from the top of the file, so the caller puts the value's own place in front.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__("several problems")
        self.problems = tuple(problems)


@dataclass
class Document:
    """The content of a file as lists, mappings, texts and numbers, with each value's line and the problems so far."""

    kind: FileKind
    values: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    settings: dict[Place, str] = field(default_factory=dict)
    """Place → the command-line setting that replaced it, as given."""

    def setting_of(self, at: Place) -> str | None:
        """Return the command-line setting that gave the value at a place, as the user wrote it; None: the file did."""
        return next((self.settings[at[:end]] for end in range(len(at), 0, -1) if at[:end] in self.settings), None)

    def line_of(self, at: Place) -> int:
        """Return the line of a place, counted from 1, or of the nearest enclosing place that the file has."""
        while at and at not in self.lines:
            at = at[:-1]
        return self.lines.get(at, 1)


class YamlDumper(yaml.SafeDumper):
    """Writes YAML that `read_document` reads back to the same values."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's name, PyYAML's type)

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def compose_node(self, parent: Any, index: Any) -> Any:
        # An alias is refused, because aliases of aliases expand without bound and no file of VCDL needs one.
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not used here: write it out", mark)
        return super().compose_node(parent, index)


for _tag, _pattern, _first in _RESOLVERS:
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    for _class in (_Loader, YamlDumper):
        _class.add_implicit_resolver(_tag, _whole, _first)


def read_document(path: Path, kind: FileKind) -> Document:
    """Read a file into a Document, with mistakes of single keys in its `problems`.

    Args:
        path: The file.
        kind: The kind that it should be.

    Raises:
        JobError: It cannot be read, is empty, is not YAML, is no mapping, or is of another kind.
    """
    node = _compose(_text_of(path, kind), str(path))
    if node is None:
        raise JobError(f"{path}: the file is empty; {kind.guide} has an example")
    document = Document(kind)
    document.values = _plain(node, (), document)
    if not isinstance(document.values, dict):
        raise JobError(f"{path}:1: expected keys, each with its value after a colon, got {show(document.values)}")
    # The kind is checked before the schema, else a fleet file given as a job file would produce a page of unknown keys.
    other = mistaken_for(kind, document.values)
    if other is not None:
        raise JobError(f"{path}: this is {other.name} ({other.guide}); give {kind.name} ({kind.guide})")
    return document


def replace_key(document: Document, setting: str) -> None:
    """Replace one key of the document in place by a setting such as `stop.epochs=2`, and record where it came from.

    Missing sections on the way are added.

    Args:
        document: The document to change.
        setting: A dotted key, `=`, and a value in YAML.

    Raises:
        JobError: It is no such setting, or a key on the way is no section.
    """
    origin = f"{document.kind.option} {show(setting)}"
    key, equals, text = setting.partition("=")
    at = tuple(key.strip().split("."))
    if not equals or not all(at):
        raise JobError(f"{origin}: expected KEY=VALUE, such as stop.epochs=2")
    node = _compose(text, origin)
    section = document.values
    for depth, step in enumerate(at[:-1], start=1):
        if section.get(step) is None:
            section[step] = {}
            document.settings[at[:depth]] = setting
        section = section[step]
        if not isinstance(section, dict):
            whole = without_passwords(".".join(at[:depth]))
            raise JobError(f"{origin}: the file has {whole} as one value; set {whole} as a whole")
    # The setting is recorded, because a wrong value from the command line has no line in the file to report.
    document.settings[at] = setting
    section[at[-1]] = None if node is None else _plain(node, at, document)


def report(path: Path, document: Document, problems: Iterable[Problem]) -> JobError:
    """Return one error for the user with a line for each problem: those of the file by line, then those of settings.

    After MAX_SHOWN problems it says only how many more there are.

    Args:
        path: The file, which precedes each line.
        document: Its content, by which each place gets its line or setting.
        problems: The problems.
    """
    of_file: list[tuple[int, str]] = []
    of_settings: list[str] = []
    for problem in problems:
        setting = document.setting_of(problem.at)
        if setting is not None:
            of_settings.append(f"{document.kind.option} {show(setting)}: {_breadcrumb(problem)}")
        else:
            of_file.append((problem.line or document.line_of(problem.at), _breadcrumb(problem)))
    lines = [f"{path}:{line}: {text}" for line, text in sorted(of_file, key=lambda pair: pair[0])] + of_settings
    return _error_of(str(path), lines)


def report_values(origin: str, problems: Iterable[Problem]) -> JobError:
    """Return one error for the user about values that come from no file, as `report` does for a file.

    Args:
        origin: Where the values come from, which precedes each line.
        problems: The problems.
    """
    return _error_of(origin, [f"{origin}: {_breadcrumb(problem)}" for problem in problems])


def _error_of(origin: str, lines: list[str]) -> JobError:
    """Return the error of at most MAX_SHOWN lines, and one that counts the others."""
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{origin}: and {len(lines) - MAX_SHOWN} more"]
    return JobError("\n".join(lines))


def show(value: Any) -> str:
    """Describe a value for an error message, on one line.

    Texts and numbers are shown as JSON, cut to 60 characters; lists and mappings as a summary. Passwords in URLs are
    masked.
    """
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "keys (" + ", ".join(without_passwords(str(key))[:20] for key in list(value)[:3]) + ")"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        value = without_passwords(value)  # before the text is cut: a password is recognised by the @ behind it
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text.encode(errors="backslashreplace").decode()  # half characters, of the command line
    return text if len(text) <= 60 else text[:56] + ' …"'


def _compose(text: str, origin: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise JobError(f"{origin}:{line}: control characters are not allowed; delete the one here") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise JobError(f"{origin}:{line}: this is not YAML: {_syntax_problem(error)}") from error
    except RecursionError as error:
        raise JobError(f"{origin}: nested too deeply") from error
    except (ValueError, OverflowError) as error:  # PyYAML's, of "\\UFFFFFFFF"
        raise JobError(f"{origin}: this is not YAML: an escape names a character that does not exist") from error


def _text_of(path: Path, kind: FileKind) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SIZE_BYTES + 1)
    except FileNotFoundError as error:
        raise JobError(f"{path}: there is no such file; check its name and the current folder") from error
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror}); give the path of {kind.name}") from error
    if len(raw) > MAX_SIZE_BYTES:
        raise JobError(f"{path}: larger than 1 MiB, so this is not {kind.name}; give another file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise JobError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from error


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    if "'\\t'" in problem:
        return "a tab where YAML wants spaces; indent with spaces"
    if "expected a single document" in str(error.context):
        return "a second document begins here; keep one in each file"
    return problem


def _plain(node: yaml.Node, at: Place, document: Document) -> Any:
    # For a value in a mapping, `_mapping` has set the line of the key, which helps a reader more than that of the
    # value.
    document.lines.setdefault(at, node.start_mark.line + 1)
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if isinstance(node, yaml.MappingNode) and kind == "map":
        return _mapping(node, at, document)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [_plain(child, (*at, index), document) for index, child in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        try:
            return _scalar(kind, _whole_characters(node.value))
        except UnicodeError:
            document.problems.append(Problem(at, _HALF))
            return None
        except (ValueError, KeyError):
            pass  # a tag that is not ours (!!python/…, !!set), or one that lies (!!int abc)
    document.problems.append(Problem(at, f"the tag {node.tag[:60]} is not used here; remove it"))
    return None


def _mapping(node: yaml.MappingNode, at: Place, document: Document) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.problems.append(Problem(at, "a key must be a plain word", line))
            continue
        try:
            key = _whole_characters(key_node.value)
        except UnicodeError:
            document.problems.append(Problem(at, f"of a key: {_HALF}", line))
            continue
        # A key that is given twice is a mistake: PyYAML would silently keep the last one, while the user sees both.
        if key in values:
            first = document.lines[(*at, key)]
            document.problems.append(Problem((*at, key), f"given on line {first} already; keep one", line))
            continue
        document.lines[(*at, key)] = line
        values[key] = _plain(value_node, (*at, key), document)
    return values


def _whole_characters(text: str) -> str:
    r"""Replace pairs of JSON's escapes (`"\ud83d\ude00"`), which stand for one character, by that character.

    JSON writes a character above U+FFFF as such a pair.

    Raises:
        UnicodeError: There is half a pair, which no file can contain.
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")


def _scalar(kind: str, text: str) -> Any:
    match kind:
        case "str":
            return text
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "bool":
            return {"true": True, "false": False}[text.lower()]
        case "null":
            return None
    raise KeyError(kind)


def _breadcrumb(problem: Problem) -> str:
    # Keys come from the file and may contain a line break, which must not break the line of the message.
    steps = [str(step + 1) if isinstance(step, int) else _printable(step) for step in problem.at]
    return f"{' > '.join(steps)}: {problem.message}" if steps else problem.message


def _printable(key: str) -> str:
    return without_passwords(key) if key.isprintable() and len(key) <= 60 else show(key)
