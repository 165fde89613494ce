"""Pilots over a real service, through a network that cuts, loses answers and doubles requests."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import applied
from tests.pool.light_pilots import SIZE, LightWorker, Pool, subtasks
from tests.served_run import SHARDS, ServedRun
from tests.tcp_proxy import TcpProxy
from tests.web.served import Served, served
from vcdl.errors import GridUnavailable, VcdlError
from vcdl.pool.desks import Assignment, PoolFolder
from vcdl.pool.pilot import Pilot
from vcdl.remote.connections import ServiceConnection
from vcdl.remote.pilot_pool import RemotePool
from vcdl.remote.service_client import ServiceClient
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import POOL
from vcdl.web.accounts import Accounts
from vcdl.web.sessions import Role

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.slow]


class BadNetwork(ServiceClient):
    """Now and then a request comes twice, or its answer is lost."""

    dice = random.Random(1)

    def _opened(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        fate = self.dice.random()
        if fate < 0.1:
            super()._opened(method, path, body, headers).close()
        answer = super()._opened(method, path, body, headers)
        if fate > 0.9:
            answer.close()
            raise GridUnavailable("the answer is lost")
        return answer


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    made = ServedRun.new(tmp_path / "runs" / "served", np.ones(SIZE, np.float32), "")
    made.folder.kind_file.write_text(f"{POOL.name}\n")
    freeze(made.run.job, made.folder)
    return Pool(made, tmp_path, epochs=1)


@pytest.fixture
def service(pool: Pool) -> Iterator[Served]:
    with served(pool.served.folder.path.parent) as service:
        yield service


def remote(pool: Pool, port: int, role: Role, kind: type[ServiceClient] = ServiceClient) -> RemotePool:
    token = Accounts(pool.served.folder.path.parent).add("lab", role, None)
    return RemotePool(kind(ServiceConnection("lab", f"http://127.0.0.1:{port}", token), 5.0, tries=1), "served")


@pytest.mark.nightly
def test_pilots_train_a_job_through_a_bad_network(pool: Pool, service: Served) -> None:
    dice = random.Random(2)
    with TcpProxy(("127.0.0.1", service.port)) as proxy:
        reached = remote(pool, proxy.port, Role.OPERATOR, BadNetwork)
        for name in ("a", "b"):
            scratch = pool.scratch / name
            scratch.mkdir()
            light = LightWorker(pool.served.prepared.layout.fingerprint)
            pool.pilots[name] = Pilot(name, reached, light, scratch, 600.0, pool.said.append, pool.clock)
        for _ in range(2000):
            if dice.random() < 0.1:
                proxy.cut()
                pool.step()
                proxy.mend()
            pool.step()
            if pool.loop.ended is not None:
                break
    updates = [update.workunit for update in applied(pool.served.folder.path)]
    assert subtasks(updates) == [(1, shard) for shard in range(SHARDS)]
    assert np.array_equal(pool.loop.snapshots.store.read()[1], pool.replayed())
    assert any("trying again" in words for words in pool.said)


def test_pilots_get_what_a_subtask_needs_and_nothing_else(pool: Pool, service: Served, tmp_path: Path) -> None:
    reached = remote(pool, service.port, Role.OPERATOR)
    reached.copy("data/shards/shard_000.npz", tmp_path / "shard")
    assert (tmp_path / "shard").read_bytes() == b"samples"
    for path in ("job.yaml", "journal.db", "prepared.json", "../../etc/passwd", "data/shards/../../job.yaml"):
        with pytest.raises(OSError, match=r"no file|no such page"):
            reached.copy(path, tmp_path / "stolen")
    for role in (Role.READER, Role.SUBMITTER):
        with pytest.raises(VcdlError, match="this needs the role operator"):
            remote(pool, service.port, role).client.ask_pool("GET", "served", "driver")
    desk, of_run = reached.desk("a"), PoolFolder.of(pool.served.folder.path).desk("a")
    with pytest.raises(FileNotFoundError, match="knows no pilot a"):
        desk.take()
    desk.make()
    task = Assignment("served_e0001_s000_a0_v000000", "{}", {})
    of_run.give(task)
    assert desk.take() == desk.take() == task  # the answer of the first was lost
    of_run.do_without(task.workunit)
    assert desk.dropped() == task.workunit
    desk.forget("served_e0001_s001_a0_v000000")  # of an earlier task, and late
    assert desk.take() == task
    desk.forget(task.workunit)
    assert desk.take() is None
    with pytest.raises(OSError, match="no name of a pilot"):
        reached.desk(".hidden").make()
    with pytest.raises(OSError, match="is not the name of a workunit"):
        reached.desk("a").end("nothing", None)
