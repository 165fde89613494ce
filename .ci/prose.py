"""Hold docstrings, comments and constants to what a script can see of CONTRIBUTING.md, "How we write".

    python .ci/prose.py vcdl [--list noun|coined|reason]

It counts three things, and ends with 1 when one of them is above its number in MOST. These only fall: who lowers a
count lowers its number.

    noun     docstrings of functions that do not begin with a verb: "The hosts of …", "Whether …"
    coined   words that the field does not use, in docstrings, comments and messages
    reason   numeric constants of a module without a reason: where the number comes from, what another would break
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

MOST = {"noun": 0, "coined": 37, "reason": 8}

_NOUN = re.compile(
    r"(The|A|An|Whether|What|Their|Its|Those|That|Each|One|Where|How|Who|Which|Of|Nothing|All|Every|No)\b"
)
_COINED = re.compile(
    r"\b(told|mend(?:s|ed|ing)?|made again|come to nothing|goes? on|went on|beside|by itself|of which|so many|nobody"
    r"|has come|have come|wish(?:es)?|deeds?|rests?\b(?! of)|desks?|bells?|spares?|on its word|take up|taken up|begun"
    r"|vouched|doubted|sleepers?)\b",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\b(because|so that|so|else|otherwise|measured|since|to keep|as |for |lest|avoid|at most|decision|docs/|arXiv|RFC"
    r"|limit|costs?|too|enough)\b",
    re.IGNORECASE,
)
_ROUND = 3
"""Lines before and after a constant in which its reason may stand."""


def nouns_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each function's docstring that does not begin with a verb; properties may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            is_property = any("property" in ast.dump(decorator) for decorator in node.decorator_list)
            if not is_property and _NOUN.match(text):
                yield node.lineno, text.splitlines()[0]


def coined_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and word of each coined word in comments and strings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from ((token.start[0], word) for word in _COINED.findall(token.string))


def unreasoned_in(tree: ast.Module, source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each numeric constant of a module without a reason next to it."""
    lines = source.splitlines()
    for node in tree.body:
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(value, ast.Constant):
            continue
        if type(value.value) in (int, float):
            near = "\n".join(lines[max(0, node.lineno - _ROUND) : (node.end_lineno or node.lineno) + _ROUND])
            if not _REASON.search(" ".join(re.findall(r"#.*|\"\"\".*?\"\"\"", near, re.DOTALL))):
                yield node.lineno, lines[node.lineno - 1]


def main(arguments: list[str]) -> int:
    """Print the counts, or with --list the places of one kind; return the exit code."""
    listed = arguments.pop(arguments.index("--list") + 1) if "--list" in arguments else ""
    counts = dict.fromkeys(MOST, 0)
    for folder in (argument for argument in arguments if argument != "--list"):
        for path in sorted(Path(folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source, path)
            found = {"noun": nouns_in(tree), "coined": coined_in(source), "reason": unreasoned_in(tree, source)}
            for kind, places in found.items():
                for line, text in places:
                    counts[kind] += 1
                    if kind == listed:
                        print(f"{path}:{line}: {text}")
    above = [kind for kind, count in counts.items() if count > MOST[kind]]
    print("prose:", ", ".join(f"{kind} {count} of {MOST[kind]}" for kind, count in counts.items()))
    for kind in above:
        print(f"more than before: `python {__file__} vcdl --list {kind}` names the places (CONTRIBUTING.md)")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
