"""Every command line of the documents is one that `vcdl` understands, with settings that exist."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.docs.markdown import blocks, pages
from tests.places import EXAMPLES, ROOT
from vcdl.cli import vcdl
from vcdl.job import load_job
from vcdl.simulate.client_fleet import load_clients

FIRST_JOB = EXAMPLES / "first_job.yaml"
_SAME_LINE = re.compile(r"\\\n\s*")
_CHOSEN = {
    "N": "1",
    **dict.fromkeys(("PATH", "PYTHON.tar.gz", "linux.tar", "base.tar.gz", "docker_wrapper.exe"), sys.executable),
}
"""What a reader puts in the place of words that click checks: a number, and files that exist."""
_OPTIONAL = re.compile(r" \[(-[^]]+|[A-Z][A-Za-z. ]*)\]")
_REMARK = re.compile(r"\s{2,}\S.*$|\s+[#>] .*$")


def lines(page: Path) -> Iterator[str]:
    """Commands in fenced blocks, without a prompt, what is said beside them, and the brackets of what may be
    left out.
    """
    for block in blocks(page):
        if block.language not in ("sh", "text", ""):
            continue
        for line in _SAME_LINE.sub("", block.code).splitlines():
            if re.match(r"(?:\$ )?vcdl [a-z]", line):
                yield _OPTIONAL.sub(r" \1", _REMARK.sub("", line.removeprefix("$ ")))


ALL = [(page.relative_to(ROOT), line) for page in pages() for line in lines(page)]


def parsed(line: str) -> click.Context:
    """Raises click.UsageError."""
    words = [_CHOSEN.get(word, word) for word in shlex.split(line)[1:]]
    context, command = click.Context(vcdl), click.Command("")
    group: click.Command = vcdl
    while isinstance(group, click.Group):
        name, found, words = group.resolve_command(context, words)
        assert found is not None
        context, command, group = click.Context(found, parent=context, info_name=name), found, found
    return command.make_context(command.name, words, parent=context.parent)


@pytest.mark.parametrize(("page", "line"), ALL, ids=str)
def test_it_is_understood(page: Path, line: str) -> None:
    context = parsed(line)
    if context.info_name in ("run", "simulate", "submit"):
        load_job(FIRST_JOB, context.params["overrides"])
    if context.info_name == "simulate":
        load_clients(None, context.params["settings"])


def test_they_are_found() -> None:
    assert len(ALL) > 50
    assert {Path("README.md"), Path("docs/tutorial.md"), Path("docs/commands.md")} <= {page for page, _ in ALL}


@pytest.mark.parametrize("line", ["vcdl nonsense", "vcdl run job.yaml --faster", "vcdl fleet explode", "vcdl plot"])
def test_a_mistake_is_seen(line: str) -> None:
    with pytest.raises(click.UsageError):
        parsed(line)
