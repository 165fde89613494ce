"""Pilots over a real service, through a network that cuts, loses answers and doubles requests."""

import random
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.vcdl_process import applied
from tests.http_server import Quiet, served_by
from tests.pool.light_pilots import SIZE, LightWorker, Pool, subtasks
from tests.served_run import SHARDS, ServedRun
from tests.tcp_proxy import TcpProxy
from tests.web.asking import answering, asking
from tests.web.served import served
from vcdl.errors import GridUnavailable, VcdlError
from vcdl.pool.mailboxes import Mailbox, PoolFolder
from vcdl.pool.messages import KEY_HEADER, Assignment, Message, host_of, mark_of
from vcdl.pool.pilot import Pilot
from vcdl.remote.connections import ServiceConnection, machine_key
from vcdl.remote.pilot_pool import RemoteMailbox, RemotePool
from vcdl.remote.service_client import ServiceClient
from vcdl.run.frozen_job import freeze
from vcdl.run.kind import POOL
from vcdl.web.accounts import Accounts
from vcdl.web.routes import router
from vcdl.web.sessions import Role, TokenBounds

KEY = "the key of one machine"
pytestmark = [pytest.mark.server, pytest.mark.slow]
WORKUNIT, LATER = "served_e0001_s000_a0_v000000", "served_e0001_s001_a0_v000000"


class BadNetwork(ServiceClient):
    """Now and then a request comes twice, or its answer is lost."""

    dice = random.Random(1)

    def _open(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        fate = self.dice.random()
        if fate < 0.1:
            super()._open(method, path, body, headers).close()
        answer = super()._open(method, path, body, headers)
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
def port(pool: Pool) -> Iterator[int]:
    with answering(pool.served.folder.path.parent) as port:
        yield port


def remote(pool: Pool, port: int, role: Role, kind: type[ServiceClient] = ServiceClient) -> RemotePool:
    token = Accounts(pool.served.folder.path.parent).add("lab", role, None)
    return reached_by(port, token, KEY, kind)


def reached_by(port: int, token: str, key: str, kind: type[ServiceClient] = ServiceClient) -> RemotePool:
    connection = ServiceConnection("lab", f"http://127.0.0.1:{port}", token)
    return RemotePool(kind(connection, 5.0, 1, {KEY_HEADER: key}), "served")


def id_of(reached: RemotePool) -> str:
    return reached.client._token.split("_")[1]


def named(reached: RemotePool, name: str) -> str:
    """The name of a pilot of a token and of the machine with KEY."""
    return f"{id_of(reached)}.{name}.{mark_of(KEY)}-1-a"


def at_work(pool: Pool, port: int) -> tuple[RemotePool, str, Mailbox]:
    """A pilot that has taken a task, by its name, and its desk as the run has it."""
    reached = remote(pool, port, Role.WORKER)
    pilot = named(reached, "a")
    mailbox, of_run = reached.mailbox(pilot), PoolFolder.of(pool.served.folder.path).mailbox(pilot)
    mailbox.make()
    of_run.give(Assignment(WORKUNIT, "{}", {}))
    assert mailbox.take() is not None
    return reached, pilot, of_run


def fly(pool: Pool, reached: RemotePool, name: str, worker: LightWorker | None = None) -> None:
    """A pilot comes by the service, under a name of its token's."""
    name = named(reached, name)
    scratch = pool.scratch / name
    scratch.mkdir()
    light = worker or LightWorker(pool.served.prepared.layout.fingerprint)
    pool.pilots[name] = Pilot(name, reached, light, scratch, 600.0, pool.said.append, pool.clock)


@pytest.mark.process
@pytest.mark.nightly
def test_pilots_train_a_job_through_a_bad_network(pool: Pool) -> None:
    dice, runs = random.Random(2), pool.served.folder.path.parent
    with served(runs) as service, TcpProxy(("127.0.0.1", service.port), delay_s=0.005) as proxy:
        reached = remote(pool, proxy.port, Role.WORKER, BadNetwork)
        for name in ("a", "b"):
            fly(pool, reached, name)
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


def test_pilots_get_what_a_subtask_needs_and_nothing_else(pool: Pool, port: int, tmp_path: Path) -> None:
    reached = remote(pool, port, Role.OPERATOR)
    assert reached.copy("data/shards/shard_000.npz", tmp_path / "shard")
    assert (tmp_path / "shard").read_bytes() == b"samples"
    assert reached.copy("data/shards/shard_000.npz", tmp_path / "shard")  # it is whole
    assert (tmp_path / "shard").read_bytes() == b"samples"
    for path in ("job.yaml", "journal.db", "prepared.json", "../../etc/passwd", "data/shards/../../job.yaml"):
        with pytest.raises(OSError, match=r"no file|no such page"):
            reached.copy(path, tmp_path / "stolen")
    for role in (Role.READER, Role.SUBMITTER):
        with pytest.raises(VcdlError, match="this requires the role operator"):
            remote(pool, port, role).read_driver()
    mailbox, of_run = reached.mailbox("a"), PoolFolder.of(pool.served.folder.path).mailbox("a")
    with pytest.raises(FileNotFoundError, match="has no pilot a"):
        mailbox.take()
    mailbox.make()
    task = Assignment(WORKUNIT, "{}", {})
    of_run.give(task)
    assert mailbox.take() == mailbox.take() == task  # the answer of the first was lost
    of_run.do_without(task.workunit)
    assert mailbox.dropped_workunit() == task.workunit
    mailbox.forget(LATER)  # of an earlier task, and late
    assert mailbox.take() == task
    mailbox.forget(task.workunit)
    assert mailbox.take() is None
    with pytest.raises(OSError, match="not a valid name of a pilot"):
        reached.mailbox(".hidden").make()
    with pytest.raises(OSError, match="is not the name of a workunit"):
        reached.mailbox("a").end("nothing", None)


@pytest.mark.parametrize("far", [False, True])
def test_a_large_file_goes_on_at_its_byte_after_a_cut(
    far: bool, pool: Pool, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcdl.pool.run_files._POUR_S", 0.0)  # a block a call, as over a slow line
    content = random.Random(1).randbytes(5 << 20)
    pool.served.folder.shard(0).write_bytes(content)
    name, part = str(pool.served.folder.shard(0).relative_to(pool.served.folder.path)), tmp_path / "part"
    if not far:
        folder = PoolFolder.of(pool.served.folder.path)
        assert [folder.copy(name, part) for _ in range(6)] == [False] * 5 + [True]
        assert part.read_bytes() == content
        return
    with TcpProxy(("127.0.0.1", port), delay_s=0.005) as proxy:
        reached = remote(pool, proxy.port, Role.WORKER)
        assert not reached.copy(name, part)
        begun = part.stat().st_size
        assert 0 < begun < len(content)
        proxy.cut()
        with pytest.raises(OSError, match="does not answer"):
            reached.copy(name, part)
        assert part.stat().st_size == begun
        proxy.mend()
        while not reached.copy(name, part):
            assert part.stat().st_size > begun
        assert part.read_bytes() == content


def test_an_update_goes_up_in_pieces_and_on_where_it_broke_off(pool: Pool, port: int, tmp_path: Path) -> None:
    update = tmp_path / "update"
    update.write_bytes(content := random.Random(1).randbytes((1 << 20) + 500))
    with TcpProxy(("127.0.0.1", port)) as proxy:
        reached = remote(pool, proxy.port, Role.WORKER)
        pilot = named(reached, "a")
        mailbox, of_run = reached.mailbox(pilot), PoolFolder.of(pool.served.folder.path).mailbox(pilot)
        mailbox.make()
        of_run.give(Assignment(WORKUNIT, "{}", {}))
        assert mailbox.take() is not None
        place = f"mailboxes/{pilot}/updates/{WORKUNIT}"
        for _ in range(2):  # the answer to the first was lost
            answer = reached.ask("PUT", f"{place}?offset=0", content[: 1 << 20])
            assert answer == {"mailbox": True, "size_bytes": 1 << 20}
        assert reached.ask("PUT", f"{place}?offset={(1 << 20) + 9}", b"late")["size_bytes"] == 1 << 20
        with pytest.raises(OSError, match="this is larger than any update of this job"):
            reached.ask("PUT", f"{place}?offset={1 << 30}", b"x")
        proxy.cut()
        with pytest.raises(OSError, match="does not answer"):
            mailbox.end(WORKUNIT, update)
        proxy.mend()
        assert mailbox.end(WORKUNIT, update)
        assert (of_run.path / f"{WORKUNIT}.h5").read_bytes() == content
        assert mailbox.end(WORKUNIT, update)  # the answer was lost
        assert of_run.endings() == [of_run.path / f"{WORKUNIT}.h5"]
        of_run.give(Assignment(LATER, "{}", {}))
        assert mailbox.take() is not None
        reached.ask("PUT", f"mailboxes/{pilot}/updates/{LATER}?offset=0", b"damaged")
        with pytest.raises(OSError, match="damaged in transit"):
            mailbox.end(LATER, update)
        assert mailbox.end(LATER, update)


def test_a_worker_of_one_job_enters_no_other_and_writes_on_no_desk_but_its_own(pool: Pool, port: int) -> None:
    accounts = Accounts(pool.served.folder.path.parent)
    other = accounts.add("elsewhere", Role.WORKER, None, TokenBounds(job="another"))
    client = ServiceClient(ServiceConnection("lab", f"http://127.0.0.1:{port}", other), 5.0, tries=1)
    with pytest.raises(VcdlError, match="elsewhere may only train for the job another"):
        RemotePool(client, "served").read_driver()
    reached = remote(pool, port, Role.WORKER)
    reached.read_driver()
    for name in ("a", f"{id_of(RemotePool(client, 'served'))}.a", id_of(reached)):
        with pytest.raises(VcdlError, match="is not a pilot of lab"):
            reached.mailbox(name).make()
    for number in range(64):
        reached.mailbox(named(reached, str(number))).make()
    with pytest.raises(OSError, match="has 64 pilots in served"):
        reached.mailbox(named(reached, "65")).make()
    reached.mailbox(named(reached, "63")).make()  # it had not heard the answer
    reached.ring(Message(named(reached, "none"), 1))  # without a desk
    rung = {message.pilot for message in PoolFolder.of(pool.served.folder.path).rung()}
    assert rung == {named(reached, str(number)) for number in range(64)}
    for odd in ({"fraction": 2.0}, {"bytes_down": -1}, {"beat": "x"}, {"training": "\ud800"}):
        with pytest.raises(OSError, match="not a valid message of a pilot"):
            reached.ask("PUT", f"heartbeats/{named(reached, '1')}", {"beat": 1, **odd})


def test_a_machine_with_the_same_token_cannot_act_for_another(pool: Pool, port: int) -> None:
    reached = remote(pool, port, Role.WORKER)
    honest = named(reached, "lab-7")
    reached.mailbox(honest).make()
    other = reached_by(port, reached.client._token, "another machine's key")
    for name in (honest, honest.replace("-1-a", "-2-b"), f"{id_of(reached)}.lab-7.{mark_of(KEY)}-1-2-3", honest + "-x"):
        acts: list[Callable[[RemoteMailbox], Any]] = [
            RemoteMailbox.make,
            RemoteMailbox.take,
            lambda it: it.end(WORKUNIT, "x"),
        ]
        for act in acts:
            with pytest.raises(VcdlError, match="is a pilot of another machine"):
                act(other.mailbox(name))
        with pytest.raises(VcdlError, match="is a pilot of another machine"):
            other.ring(Message(name, 1, is_leaving=True))
    assert host_of(honest) == f"{id_of(reached)}.lab-7.{mark_of(KEY)}"
    assert machine_key() == machine_key()


def test_half_of_a_pair_of_surrogates_is_no_bug(pool: Pool, port: int) -> None:
    reached, pilot, _ = at_work(pool, port)
    for path, body in (
        (f"heartbeats/{pilot}", {"beat": 1, "\ud800": 1}),
        (f"endings/{WORKUNIT}", {"reason": "\ud800"}),
    ):
        place = path if path.startswith("heartbeats") else f"mailboxes/{pilot}/{path}"
        with pytest.raises(OSError, match=r"not a valid message of a pilot|valid string"):
            reached.ask("PUT", place, body)


def test_a_part_that_is_a_link_is_not_written_through(pool: Pool, port: int, tmp_path: Path) -> None:
    (mine := tmp_path / "authorized_keys").write_text("mine")
    reached, pilot, of_run = at_work(pool, port)
    (of_run.path / f".{WORKUNIT}.part").symlink_to(mine)  # by a pilot that has the folder
    with pytest.raises(OSError, match="no regular file"):
        reached.ask("PUT", f"mailboxes/{pilot}/updates/{WORKUNIT}?offset=0", b"theirs")
    with pytest.raises(OSError, match="damaged in transit"):
        reached.ask("PUT", f"mailboxes/{pilot}/endings/{WORKUNIT}", {"sha256": "0" * 64})
    assert mine.read_text() == "mine"
    (beside := tmp_path / "beside").mkdir()
    for name in ("taken.json", f".{LATER}.part"):
        (beside / name).write_bytes((of_run.path / "taken.json").read_bytes())
    of_run.path.rename(tmp_path / "aside")
    of_run.path.symlink_to(beside)
    assert reached.ask("PUT", f"mailboxes/{pilot}/updates/{WORKUNIT}?offset=0", b"theirs")["mailbox"] is False
    assert sorted(path.name for path in beside.iterdir()) == [f".{LATER}.part", "taken.json"]


def test_a_workers_token_opens_pools_and_nothing_else(tmp_path: Path) -> None:
    program, browser = asking(tmp_path, logged_in=False), asking(tmp_path, logged_in=False)
    token = Accounts(tmp_path).add("lab", Role.WORKER, 1)
    assert browser.post("/login", data={"token": token}).status_code == 200
    program.headers["authorization"] = f"Bearer {token}"
    app: Any = program.app
    asked = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    asked |= {(method, route.path) for route in router.routes for method in route.methods}  # type: ignore[attr-defined]
    assert {("POST", "/api/v1/jobs"), ("GET", "/metrics"), ("GET", "/jobs/{name}")} <= asked
    opened = set()
    for method, path in asked:
        for client in (program, browser):
            answer = client.request(method, path.replace("{", "").replace("}", ""))
            if "lab may only train for pools: this token is of the role worker" not in answer.text:
                opened.add(path)
            elif answer.status_code != 403:
                raise AssertionError(f"{method} {path} answers {answer.status_code}")
    others = {path for path in opened if not path.startswith("/api/v1/pools/{name}/")}
    assert others == {"/healthz", "/login", "/api/v1/version"}


@pytest.mark.parametrize(
    "said",
    [b"[]", b"{}", b"7", b"\xff", b"[" * 100_000, b'{"mailbox": true}', b'{"mailbox": true, "size_bytes": "x"}',
     b'{"driver": {"id": 1}}', b'{"mailbox": true, "task": {"workunit": "../x", "description": "", "files": {}}}',
     b'{"mailbox": true, "task": {"workunit": "a_e0001_s000_a0_v000000", "description": "\\ud800", "files": {}}}'],
)  # fmt: skip
def test_a_service_that_answers_nonsense_is_away(said: bytes, tmp_path: Path) -> None:
    class Nonsense(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.end_headers()  # without a length, an identity or a range
            self.wfile.write(said)

    for method in ("POST", "PUT"):
        setattr(Nonsense, f"do_{method}", Nonsense.do_GET)
    (update := tmp_path / "update").write_bytes(b"x")
    with served_by(Nonsense) as url:
        reached = reached_by(int(url.rpartition(":")[2]), "vcdl_0_x", KEY)
        mailbox = reached.mailbox("a")
        acts: list[Callable[[], object]] = [reached.read_driver, mailbox.take, mailbox.dropped_workunit]
        acts += [lambda: mailbox.end(WORKUNIT, update), lambda: reached.copy("model.json", tmp_path / "part")]
        for act in acts:
            with pytest.raises(OSError, match=r"cannot read|does not answer like|broke off"):
                act()
        client = reached.client
        for ask in (client.version, lambda: list(client.jobs()), lambda: client.stop("a"), lambda: client.events("a")):
            with pytest.raises(VcdlError, match="does not answer like a service of VCDL"):
                ask()
        assert reached.file_identity("model.json")
