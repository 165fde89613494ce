"""Hostile clients of the service and files that they send, each refused; tests/web/test_guard.py has those of forms,
hosts, tokens and large bodies, tests/web/test_submissions.py those of jobs that name what is the server's.
"""

import asyncio
import hashlib
import io
import json
import socket
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import uvicorn
from numpy.lib import format as npy

from tests.run_folders import make_run
from tests.web.asking import asking
from tests.web.served import chromium, looking, served
from tests.web.test_submissions import API, JOB, Sender
from vcdl.errors import JobError
from vcdl.web import guard
from vcdl.web.accounts import Accounts
from vcdl.web.app import TimedConnection, bound
from vcdl.web.service import WebService
from vcdl.web.sessions import Caller, Role
from vcdl.web.submissions import Submissions

if TYPE_CHECKING:
    from playwright.sync_api import Dialog

PATHS = (
    "/jobs/..%2f..%2fetc%2fpasswd", f"{API}/jobs/%2e%2e/files/summary.json", f"{API}/jobs/demo/files/..%2fjob.yaml",
    f"{API}/jobs/demo/files/job.yaml", f"{API}/jobs/.service/files/accounts.db",
    "/static/..%2fapp.py", "/static/../app.py", f"{API}/jobs/..%2f..%2fetc",
    f"{API}/outputs/..%2f..%2fjob.yaml", f"{API}/jobs/.service/events",
    "/jobs/demo%00",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_leads_out_of_the_jobs_leads_nowhere(tmp_path: Path, path: str) -> None:
    make_run(tmp_path / "demo")
    answer = asking(tmp_path).get(path)
    assert answer.status_code in (404, 409, 422), answer.text
    assert not {"root:", "SQLite", "shards:"} & set(answer.text.split())


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", b"GET / HTT", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET / H"])
def test_a_connection_whose_request_does_not_come_is_ended(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def ended() -> float:
        listener = bound("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, http=TimedConnection, lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(said)
        begin_s = asyncio.get_running_loop().time()

        async def drip() -> None:
            while said:
                await asyncio.sleep(0.05)
                writer.write(b"x")

        dripping = asyncio.create_task(drip())
        await asyncio.wait_for(reader.read(), 10)
        while not reader.at_eof():
            await asyncio.wait_for(reader.read(), 10)
        dripping.cancel()
        server.should_exit = True
        writer.close()
        await serving
        return asyncio.get_running_loop().time() - begin_s

    monkeypatch.setattr(TimedConnection, "head_s", 0.3)
    assert asyncio.run(ended()) < 8


@pytest.mark.server
def test_answers_of_several_parts_do_not_wait_for_the_client() -> None:
    async def is_at_once() -> bool:
        at_once = asyncio.get_running_loop().create_future()

        def accepted(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            option = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            at_once.set_result(bool(option))
            writer.close()

        listener = bound("127.0.0.1", 0)
        async with await asyncio.start_server(accepted, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            return await asyncio.wait_for(at_once, 10)

    assert asyncio.run(is_at_once())


def test_a_body_that_stands_still_or_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def message(pause_s: float) -> dict[str, Any]:
        await asyncio.sleep(pause_s)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def types(pause_s: float) -> list[str]:
        receive = guard._limit_body(lambda: message(pause_s), 1 << 20)
        found: list[str] = []
        while not found or found[-1] != "http.disconnect":
            found.append((await receive())["type"])
        return found

    monkeypatch.setattr(guard, "_BODY_WAIT_S", 0.2)
    monkeypatch.setattr(guard, "_BODY_S", 0.3)
    assert asyncio.run(types(5.0)) == ["http.disconnect"]
    assert 1 < len(asyncio.run(types(0.05))) < 10


def test_those_who_only_watch_leave_connections_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "demo")
    monkeypatch.setattr("vcdl.web.routes.MOST_WATCHERS", 0)
    client = asking(tmp_path)
    for path in ("/", "/hosts", "/jobs/demo"):
        assert client.get(path, headers={"accept": "text/event-stream"}).status_code == 503
    assert client.get("/jobs/demo").status_code == 200


def _npz_bomb(path: Path) -> None:
    """An array of 8 GB in some megabytes: zeros, as whole as any other."""
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (8 << 30,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr("y_train.npy", _member(np.zeros(8, dtype=np.int64)))
        with file.open("x_train.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(64):
                member.write(bytes(1 << 20))


def _member(array: Any) -> bytes:
    file = io.BytesIO()
    npy.write_array(file, array)
    return file.getvalue()


def _lambda_model(path: Path) -> None:
    """A model with code in a layer, as Keras writes it."""
    code = {"class_name": "__lambda__", "config": {"code": "4wAAAA==", "defaults": None, "closure": None}}
    layers = [
        {"class_name": "InputLayer", "config": {"batch_shape": [None, 64], "dtype": "float32", "name": "i"}},
        {"class_name": "Lambda", "config": {"name": "evil", "function": code, "trainable": True}},
    ]
    path.write_text(json.dumps({"class_name": "Sequential", "config": {"name": "s", "layers": layers}}))


def _hdf5_bomb(path: Path) -> None:
    """A .keras file whose weights say that they are 8 TB, in chunks that are not there."""
    import h5py

    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file.create_dataset("layers/dense/vars/0", (1 << 20, 1 << 21), "f4", chunks=(1024, 1024), compression="gzip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.weights.h5", weights.getvalue())
        archive.writestr("metadata.json", '{"keras_version": "3.0.0"}')
        dense = {"class_name": "Dense", "config": {"name": "dense", "units": 1 << 21}}
        inner = {"class_name": "InputLayer", "config": {"batch_shape": [None, 1 << 20], "name": "i"}}
        config = {"name": "s", "layers": [inner, dense]}
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": config}))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("write", "section", "name"),
    [
        (_npz_bomb, {"data": {"npz": "data.npz"}}, "data.npz"),
        (_lambda_model, {"model": {"keras_json": "model.json"}}, "model.json"),
        (_hdf5_bomb, {"model": {"keras": "model.keras"}}, "model.keras"),
    ],
)
def test_a_hostile_file_is_refused_by_the_check(
    tmp_path: Path, write: Callable[[Path], None], section: dict[str, Any], name: str
) -> None:
    (runs := tmp_path / "runs").mkdir()
    client = asking(runs, logged_in=False)
    client.headers["authorization"] = f"Bearer {Accounts(runs).add('eve', Role.SUBMITTER, 1)}"
    write(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert client.put(f"{API}/chunks/{digest}", content=content).status_code == 204
    body = {"job": json.dumps({**JOB, **section}), "files": [{"name": name, "chunks": [digest]}]}
    for _ in range(30):
        answer = client.post(f"{API}/jobs", json=body, headers={"Idempotency-Key": "key-12345"})
        if answer.status_code != 202:  # it waits, or is being checked
            break
    assert answer.status_code == 422, answer.text
    assert sorted(path.name for path in runs.iterdir()) == [".service"]


@pytest.mark.slow
@pytest.mark.process
def test_code_beside_a_job_does_not_run_in_its_check(tmp_path: Path) -> None:
    """Such files are refused by their names; were they there all the same, nothing would import them."""
    (runs := tmp_path / "runs").mkdir()
    submissions = WebService.over(runs).submissions
    (folder := runs / ".service" / "jobs" / "away").mkdir(parents=True)
    (folder / "job.yaml").write_text(json.dumps({**JOB, "seed": 0.5}))
    (ran := tmp_path / "ran").mkdir()
    for name in ("vcdl", "numpy", "yaml", "sitecustomize", "usercustomize", "click", "re", "keras", "pydantic"):
        (folder / f"{name}.py").write_text(f"open({str(ran / name)!r}, 'w')")
    with pytest.raises(JobError, match=r"^job.yaml:1: seed"):
        submissions._check(folder)
    assert [*ran.iterdir()] == []


def test_parallel_submissions_are_counted_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty at once, each with a file that once made it count as over."""
    sender = Sender(tmp_path / "runs", monkeypatch)
    submissions: Submissions = sender.client.app.state.service.submissions  # type: ignore[attr-defined]
    together = threading.Barrier(30)

    def submit(number: int) -> str:
        together.wait()
        try:
            return submissions.submit(Caller("ada", Role.SUBMITTER), f"key-{number:05d}", json.dumps(JOB), [])
        except JobError as error:
            return str(error)

    with ThreadPoolExecutor(30) as pool:
        said = [*pool.map(submit, range(30))]
    taken = [name for name in said if name.startswith("away")]
    assert sorted(taken) == sorted(["away", *(f"away-{number}" for number in range(2, 11))])
    assert {*said} - {*taken} == {"ada has 10 open jobs, the limit is 10: wait for one to finish"}
    assert submissions._reserved == {}
    _, chunk = sender.put(b"it is over")
    for name in ("failure.txt", "summary.json"):
        assert sender.send(JOB, f"key-of-{name}", {name: [chunk]})[0] == 422


@pytest.mark.server
@pytest.mark.slow
def test_names_with_markup_run_nothing_in_a_browser(tmp_path: Path) -> None:
    from tests.recorded_run import FIRST_SESSION, recorded
    from vcdl.journal.events import WorkunitFailed, WorkunitSent

    evil = "<img src=x onerror=alert(1)>"
    events = [
        *FIRST_SESSION,
        (31, WorkunitSent("demo_e0002_s000_a0_v000002", evil, 1)),
        (32, WorkunitFailed("demo_e0002_s000_a0_v000002", "<script>alert(2)</script>")),
    ]
    folder = make_run(tmp_path / "runs" / evil, recorded(events), finished=False)
    text = folder.job_file.read_text().replace("data:", 'data:\n  classes: ["<svg onload=alert(3)>", "b"]', 1)
    with chromium() as browser, served(folder.path.parent) as service, looking(browser, service) as page:
        said: list[str] = []

        def seen(dialog: "Dialog") -> None:
            said.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", seen)
        for path in ("/", "/jobs/%3Cimg%20src=x%20onerror=alert(1)%3E", "/hosts", "/server"):
            answer = page.goto(f"{service.url}{path}")
            assert answer is not None
            assert answer.ok
            page.wait_for_timeout(300)
            assert page.locator("main img, main script").count() == 0
        folder.job_file.write_text(text)  # a job that cannot be read shows its error, too
        page.goto(f"{service.url}/")
        page.wait_for_timeout(1200)
        assert said == []
