"""The measurement of a GPU, on the processor: whoever is lent a GPU has eight minutes, and no time for mistakes."""

import json
from pathlib import Path

import pytest

from benchmarks import bench_gpu
from benchmarks.bench_gpu import Case, ended, measured, started

TINY = (Case("small_cnn", "float32", 32, 64), Case("transformer_tiny", "mixed_bfloat16", 16, 32))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.keras
def test_each_part_gives_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(bench_gpu.__file__).parents[1])
    monkeypatch.setattr(bench_gpu, "ROUNDS_S", 0.1)
    found = dict(measured(TINY, 400, on_cpu=True))
    assert not [name for name, figures in found.items() if "failed" in figures], found
    assert found["agreement"]["is_rounding"]
    assert found["resumed"]["is_rounding"]
    assert found["subtasks"]["halves"]["outcomes"] == ["quit", "done"]
    for case in TINY:
        assert found[f"speed {case.model} {case.precision}"]["client_of_fit"] > 0
    json.dumps(found)


@pytest.mark.process
def test_a_part_that_fails_or_takes_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(bench_gpu.__file__).parents[1])
    wrong = Case("no_such_model", "float32", 1, 1)
    assert "failed" in ended(started("no such part", tmp_path, wrong, on_cpu=True), 60)
    assert ended(started("speed", tmp_path, TINY[0], on_cpu=True), 0.01) == {"failed": "not over after 0 s"}
