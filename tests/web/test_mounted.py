"""The service below a path of a web server."""

import re
from pathlib import Path

from fastapi.testclient import TestClient

from tests.run_folders import make_run
from tests.web.asking import ADDRESS, csrf_of
from vcdl.report.failure import describe_error
from vcdl.web.app import create_app, mount
from vcdl.web.service import WebService

BASE = "/lab_vcdl"


def test_every_link_and_redirect_stays_below_the_path(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    service = WebService.over(tmp_path, base=BASE)
    client = TestClient(mount(create_app(service, describe_error), BASE), base_url=ADDRESS, follow_redirects=False)
    assert client.get(f"{BASE}/jobs/demo").headers["location"] == f"{BASE}/login?next=/jobs/demo"
    logged_in = client.get(f"{BASE}/login", params={"code": service.code, "next": "/jobs/demo"})
    assert f"url={BASE}/jobs/demo" in logged_in.text
    assert f"Path={BASE}/" in logged_in.headers["set-cookie"]
    for path in ("/", "/jobs/demo", "/hosts", "/server"):
        page = client.get(f"{BASE}{path}")
        assert page.status_code == 200
        found = re.findall(r'(?:href|src|action|formaction|data-live)="(/[^"]*)"', page.text)
        assert len(found) > 4
        assert all(link.startswith(f"{BASE}/") for link in found), found
    assert client.get(f"{BASE}/jobs/demo/").status_code == 404  # and leads to no path of another application
    csrf = csrf_of(client.get(f"{BASE}/jobs/demo").text)
    assert client.post(f"{BASE}/logout", data={"csrf": csrf}).headers["location"] == f"{BASE}/login"
    assert client.get(f"{BASE}/static/style.css").status_code == 200
    assert client.get("/static/style.css").status_code == 303  # as of any page without a session
    assert client.get("/jobs/demo").headers["location"].startswith(f"{BASE}/login")
