"""Commands that messages advise can be pasted: what stands in them is quoted for the shell, or needs no quotes."""

import ast
from collections.abc import Iterator

from tests.places import ROOT

_STARTS = ("vcdl ", "rm ", "mv ", "cp ", "chmod ", "chown ", "sudo ", "ls ", "cd ", "kill ", "iconv ", "pip ")
_QUOTES = {"quote", "quote_path", "for_shell"}
_PLAIN = {
    "name", "client.name", "server", "pid", "names[0]", "self.name", "template", "folder.kind.begun_by",
    "kind.begun_by", "job['name']", "self.extra", "extra", "file.suffix", "settings.name", "job.name",
    "again", "unset",
}  # fmt: skip
"""Names of jobs, projects and extras, keys of the job file, numbers, and what was quoted before."""


def _values_in_commands(text: ast.JoinedStr) -> Iterator[str]:
    """The expressions between backticks, behind the word of a command, that no call quotes."""
    inside, begun = False, ""
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            call = part.value
            is_quoted = isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in _QUOTES
            if inside and begun.startswith(_STARTS) and not is_quoted:
                yield ast.unparse(call)
            continue
        pieces = str(part.value).split("`") if isinstance(part, ast.Constant) else [""]
        for number, piece in enumerate(pieces):
            if number:
                inside, begun = not inside, ""
            begun += piece


def test_what_stands_in_an_advised_command_is_quoted() -> None:
    found = []
    for file in sorted((ROOT / "vcdl").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                odd = [value for value in _values_in_commands(node) if value not in _PLAIN]
                found += [f"{file.relative_to(ROOT)}:{node.lineno}: {value}" for value in odd]
    assert not found, "\n".join(found)
