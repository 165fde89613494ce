"""A fleet's folder: a damaged state is refused, and its locks exclude others as long as their holder lives."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcdl.errors import FleetError
from vcdl.fleet import folder as module
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.state import FleetGoal, FleetState


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    made = FleetFolder.beside(tmp_path / "fleet.yaml", "cifar")
    made.path.mkdir(parents=True)
    return made


@given(st.text(max_size=40))
def test_a_damaged_state_is_refused(text: str) -> None:
    with pytest.raises(FleetError, match=r"state\.json is damaged"):
        FleetState.of_json(text)


@pytest.mark.parametrize(
    "changed",
    [
        {"target": "1"}, {"target": [[[]]]}, {"wanted": 1.5}, {"budget_spent": 1}, {"last_pass_s": float("nan")},
        {"away_since_s": {"us-east-1": float("inf")}}, {"away_since_s": None},
        {"cooldowns": [{"pool": {"cloud": "aws", "type": 5, "region": "r"}, "until_s": 1.0, "why": ""}]},
        {"cooldowns": [{"pool": {"cloud": "aws", "type": "t", "region": "r"}, "until_s": float("inf"), "why": ""}]},
        {"recent_launches": [{"instance": {}, "noted_s": 1.0}]},
    ],
)  # fmt: skip
def test_a_state_with_a_value_of_another_kind_is_refused(changed: dict[str, object]) -> None:
    text = json.dumps({**json.loads(FleetState(FleetGoal.DOWN).to_json()), **changed})
    with pytest.raises(FleetError, match=r"state\.json is damaged"):
        FleetState.of_json(text)


HOLDER = """
import sys, time
from pathlib import Path
from vcdl.fleet.folder import FleetFolder
folder = FleetFolder(Path(sys.argv[1]))
with folder.running(), folder.one_pass():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.process
def test_a_pass_and_a_loop_exclude_others_until_their_process_is_killed(
    folder: FleetFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT_S", 0.2)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert folder.running_pid() == holder.pid
        with pytest.raises(FleetError, match=f"process {holder.pid} has been busy"), folder.one_pass():
            pass
        with pytest.raises(FleetError, match=f"process {holder.pid} already runs the fleet"), folder.running():
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert folder.running_pid() is None
    with folder.running(), folder.one_pass():
        pass
