"""A client of the service in this process, logged in as its owner."""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi.testclient import TestClient

from vcdl.report.failure import describe_error
from vcdl.web.app import bound, create_app
from vcdl.web.service import WebService

ADDRESS = "http://127.0.0.1:8630"


def asking(runs: Path, hosts: Sequence[str] = (), logged_in: bool = True, **options: Any) -> TestClient:
    """A client of a new service, with such options, over a folder of runs."""
    service = WebService.over(runs, **options)
    app = create_app(service, describe_error, hosts)
    client = TestClient(app, base_url=ADDRESS, follow_redirects=False, raise_server_exceptions=False)
    if logged_in:
        assert client.get("/login", params={"code": service.code}).status_code == 200
    return client


@contextmanager
def answering(runs: Path) -> Iterator[int]:
    """A service over a folder of runs in a thread of this process; yields its port."""
    app = create_app(WebService.over(runs), describe_error)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    listener = bound("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def csrf_of(page: str) -> str:
    """What a form of a page brings along."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]
