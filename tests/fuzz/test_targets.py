"""Every fuzz target takes its own corpus, some mutations of it crash nothing, and what does crash is kept and told."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fuzz.mutations import mutated, mutated_json
from fuzz.runner import run_target
from fuzz.target import Target, hold
from fuzz.targets.all import TARGETS
from vcdl.errors import DataError


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.keras] * (name == "keras_archives")) for name in TARGETS]
)
def test_a_target_takes_its_corpus_and_survives_some_mutations(tmp_path: Path, name: str) -> None:
    result = run_target(TARGETS[name], seconds=None, count=60, seed=1, crashes=tmp_path / "crashes")
    assert result.crashes == {}
    assert result.inputs >= 60
    assert result.taken > 0
    assert sum(result.refused.values()) > 0


class _Planted(Target):
    """A reader with a fault for each kind of input."""

    refuses = (DataError,)

    def seeds(self) -> Sequence[bytes]:
        return [b"seed"]

    def take(self, data: bytes) -> None:
        if data == b"seed":
            return
        self.go_wrong()

    def go_wrong(self) -> None:
        raise DataError("")


class _Silent(_Planted):
    name = "silent"


class _Uncaught(_Planted):
    name = "uncaught"

    def go_wrong(self) -> None:
        raise KeyError("a")


class _Broken(_Planted):
    name = "broken"

    def go_wrong(self) -> None:
        hold(False, "an invariant")


class _Greedy(_Planted):
    name = "greedy"

    def go_wrong(self) -> None:
        bytearray(3 << 30)


class _Endless(_Planted):
    name = "endless"

    def go_wrong(self) -> None:
        end_s = time.process_time() + 60
        while time.process_time() < end_s:
            pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (_Silent, "DataError at test_targets.py"),
        (_Uncaught, "KeyError at test_targets.py"),
        (_Broken, "BrokenContractError at target.py"),
        (_Greedy, "MemoryError at test_targets.py"),
        (_Endless, "TooSlowError at runner.py"),
    ],
)
def test_a_crash_is_kept_once_and_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Target],
    place: str,
) -> None:
    monkeypatch.setattr("fuzz.runner.LONGEST_S", 0.2)
    result = run_target(kind, seconds=None, count=3, seed=1, crashes=tmp_path)
    ((where, path),) = result.crashes.items()
    assert where.startswith(place)
    assert path.parent == tmp_path
    assert path.read_bytes() != b"seed"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert f"CRASH of {kind.name}" in capsys.readouterr().out


def test_mutations_change_bytes_and_values() -> None:
    dice, data = random.Random(1), b'{"a": [1, 2.5, "text"], "b": null}'
    assert len({mutated(dice, data, [data], (b"word",)) for _ in range(200)}) > 150
    assert len({repr(mutated_json(dice, {"a": [1, 2.5, "text"], "b": None})) for _ in range(200)}) > 100
