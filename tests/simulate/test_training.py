"""The pool of real workers of a simulation; a stand-in for the client does what its shard says."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vcdl.loop.grid import GaveUp
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Staged, Uploaded
from vcdl.simulate.training import PooledTraining
from vcdl.wire.workunit import Named, Training, Workunit

pytestmark = pytest.mark.process

STAND_IN = """
import json, os, sys, time
from pathlib import Path

def tell(event, **facts):
    print(json.dumps({"event": event, **facts}), flush=True)

tell("ready")
for line in sys.stdin:
    slot = Path(json.loads(line)["folder"])
    order = Path("order")
    tries = sum(entry == slot.name for entry in order.read_text().split()) if order.exists() else 0
    with order.open("a") as file:
        print(slot.name, file=file)
    do = (slot / "shard.npz").read_text()
    while do == "wait" and not Path("go").exists():
        time.sleep(0.01)
    if do == "die once" and not tries:
        os._exit(7)
    if do == "fail":
        tell("failed", reason="the loss is not a number")
    else:
        (slot / "update.h5").write_text("weights")
        tell("done")
"""
TRAINING = Training(Named("sgd"), 0.1, 8, 1, Named("mean_squared_error"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, and the one in which `python -m vcdl.simulate.shard_trainer` finds the stand-in first."""
    package = tmp_path / "vcdl" / "simulate"
    package.mkdir(parents=True)
    for name, text in (("../__init__.py", ""), ("__init__.py", ""), ("shard_trainer.py", STAND_IN)):
        (package / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


Begin = Callable[[int, str, float], str]


@pytest.fixture
def pool(here: Path) -> Iterator[tuple[PooledTraining, Begin]]:
    folder = RunFolder(here / "run")
    folder.create()
    folder.model_file.write_text("{}")
    folder.snapshot(0).write_text("weights")
    folder.shards.mkdir()
    training = PooledTraining(folder, workers=1)

    def begin(shard: int, do: str, due_s: float) -> str:
        folder.shard(shard).write_text(do)
        workunit = Workunit(job="j", epoch=1, shard=shard, attempt=0, base_version=0, seed=7, training=TRAINING)
        training.begin(Staged(workunit, folder.model_file, folder.snapshot(0), folder.shard(shard)), due_s)
        return workunit.name

    training.start()
    yield training, begin
    training.close()


def test_what_is_due_first_is_trained_first(pool: tuple[PooledTraining, Begin], here: Path) -> None:
    training, begin = pool
    names = [begin(shard, "work" if shard else "wait", due_s) for shard, due_s in enumerate((5.0, 30.0, 10.0, 20.0))]
    (here / "go").touch()
    assert isinstance(training.outcome(names[1]), Uploaded)
    assert (here / "order").read_text().split() == [names[0], names[2], names[3], names[1]]


def test_a_subtask_whose_worker_died_is_trained_again(pool: tuple[PooledTraining, Begin]) -> None:
    training, begin = pool
    assert isinstance(training.outcome(begin(0, "die once", 1.0)), Uploaded)


def test_a_subtask_that_fails_each_time_gives_its_reason(pool: tuple[PooledTraining, Begin], here: Path) -> None:
    training, begin = pool
    name = begin(0, "fail", 1.0)
    assert training.outcome(name) == GaveUp(name, "the loss is not a number")
    assert (here / "order").read_text().split() == [name] * 3


def test_a_subtask_that_is_cancelled_before_its_turn_is_not_trained(
    pool: tuple[PooledTraining, Begin], here: Path
) -> None:
    training, begin = pool
    first, unwanted, last = (begin(shard, "work" if shard else "wait", float(shard)) for shard in range(3))
    training.cancel([unwanted])
    (here / "go").touch()
    assert isinstance(training.outcome(last), Uploaded)
    assert (here / "order").read_text().split() == [first, last]


def test_what_is_done_leaves_nothing_behind(pool: tuple[PooledTraining, Begin], here: Path) -> None:
    training, begin = pool
    name = begin(0, "work", 1.0)
    outcome = training.outcome(name)
    assert isinstance(outcome, Uploaded)
    assert outcome.path.exists()
    training.done(name, None)
    assert list((here / "run" / "uploads").iterdir()) == list((here / "run" / "slots").iterdir()) == []
