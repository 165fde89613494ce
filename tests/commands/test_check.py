"""`vcdl check` on job files that are wrong, unwise or in order."""

import json
from pathlib import Path

import pytest

from tests.places import EXAMPLES
from vcdl.commands.check import check
from vcdl.errors import ExitCode, JobError, StoreUnavailable

DIGITS = EXAMPLES / "digits.yaml"


def test_a_job_in_order_is_described_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(DIGITS, as_json=True) is ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["job"], found["shards"], found["notes"]) == (True, "digits", 4, [])


def test_shards_smaller_than_a_batch_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(DIGITS, ["data.shards=100"]) is ExitCode.OK
    assert "note   a shard has 11 samples and training > batch_size is 16" in capsys.readouterr().out


def test_what_is_wrong_is_there_for_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: x\nmodle: {}\n")
    with pytest.raises(JobError, match="modle") as raised:
        check(job, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"ok": False, "error": str(raised.value)}


@pytest.mark.parametrize("url", ["redis://localhost:1/0", "mysql://nobody@127.0.0.1:1/none"])
def test_a_store_that_does_not_answer_is_found_before_the_data_is_read(tmp_path: Path, url: str) -> None:
    (tmp_path / "broken.npz").write_bytes(b"no data")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        check(DIGITS, [f"store={url}", "data.dataset=null", f"data.npz={tmp_path / 'broken.npz'}"])
