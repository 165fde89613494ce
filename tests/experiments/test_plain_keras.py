"""The control of benchmarks: plain `fit` sees what a run's clients see."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.experiments.problems import StrangersProblem
from benchmarks.plain_keras import main

pytestmark = [pytest.mark.keras, pytest.mark.slow]


@pytest.mark.nightly
def test_tokens_stay_the_numbers_that_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standardised, most of them became 0, and four epochs had 25 % of six classes."""
    job_file = StrangersProblem("topics", "texts", "words").write(tmp_path)
    monkeypatch.setattr(sys, "argv", ["plain_keras.py", str(job_file), "4"])
    main()
    assert json.loads(capsys.readouterr().out)["test"] > 0.6
