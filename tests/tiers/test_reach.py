"""A test's tiers follow from what it can reach; a test that does more than they say fails."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.tiers import guard
from tests.tiers.reach import loads_keras, tiers_of
from tests.tiers.source import Name, Source

FILES = {
    "vcdl/__init__.py": "",
    "vcdl/worker.py": """
import subprocess
from dataclasses import dataclass

@dataclass
class Worker:
    name: str
    def start(self) -> None:
        self._process = subprocess.Popen([self.name])
    def rename(self, name: str) -> None:
        self.name = name

def parse(worker: "Worker", kind: Worker) -> str:
    return worker.name
""",
    "vcdl/model.py": "def build():\n    from keras import layers\n    return layers.Dense(1)\n",
    "vcdl/face.py": """
from vcdl.worker import Worker as Exported
from vcdl import model
BUILDERS = {'a': model.build}
""",
    "vcdl/group.py": """
import subprocess
import click

@click.group()
def command(): ...

@command.command()
def inner():
    subprocess.run(["true"])
""",
    "tests/__init__.py": "",
    "tests/eager.py": "import keras\n",
    "tests/test_it.py": """
import os, socketserver
import vcdl.face
from vcdl.face import BUILDERS, Exported
from vcdl.group import command
from vcdl.worker import Worker, parse

def test_nothing(): parse(None, None)
def test_class_alone(): Exported("a").rename("b")
def test_method(): run_it(Exported("a"))
def test_chain(): vcdl.face.Exported.start
def test_table(): BUILDERS["a"]()
def test_group(): command()
def test_server():
    from http.server import HTTPServer as S
    S()
class TestGrouped:
    def test_inner(self): os.fork()
    def test_other(self): pass
def run_it(worker): worker.start()
""",
}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Source(tmp_path)


@pytest.mark.parametrize(
    ("test", "tiers"),
    [
        ("test_nothing", set()),  # a type in an annotation is not used
        ("test_class_alone", set()),
        ("test_method", {"process"}),
        ("test_chain", {"process"}),
        ("test_table", {"keras"}),
        ("test_group", {"process"}),
        ("test_server", {"server"}),
        ("TestGrouped.test_inner", {"process"}),
        ("TestGrouped.test_other", set()),
    ],
)
def test_tiers_follow_from_what_is_named(source: Source, test: str, tiers: set[str]) -> None:
    symbol, _, method = test.partition(".")
    assert tiers_of(source, frozenset({(Name("tests.test_it", symbol), method)})) == tiers


def test_a_fixture_brings_its_tiers(source: Source) -> None:
    starts = {(Name("tests.test_it", "test_nothing"), ""), (Name("vcdl.group", "inner"), "")}
    assert tiers_of(source, frozenset(starts)) == {"process"}


def test_a_module_that_imports_keras_is_known_unloaded(source: Source) -> None:
    assert loads_keras(source, "tests.eager")
    assert not loads_keras(source, "tests.test_it")


# -- the guard


def start_process() -> None:
    subprocess.run(["true"], check=True)


def spawn() -> None:
    process = get_context("spawn").Process(target=print)
    process.start()
    process.join()


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def listen() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()


@pytest.mark.parametrize(
    ("act", "tier"), [(start_process, "process"), (spawn, "process"), (fork, "process"), (listen, "server")]
)
def test_what_the_markers_do_not_say_fails_even_where_the_error_is_caught(act: Callable[[], None], tier: str) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match=f"not in the tier `{tier}`"),
        guard.only(frozenset()),
        suppress(RuntimeError),
    ):
        act()
    with guard.only(frozenset({tier})):
        act()


def test_keras_is_not_loaded_unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    with pytest.raises(pytest.fail.Exception, match="not in the tier `keras`"), guard.only(frozenset()):
        __import__("keras")
