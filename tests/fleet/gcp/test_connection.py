"""The connection to Compute Engine: the library, the credentials, the network."""

import socket
import sys
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import google.cloud
import pytest

from tests.fleet.fleet_files import settings_of
from tests.fleet.gcp.conftest import GCP
from tests.http_server import served_by
from vcdl.errors import FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.gcp.connection import ENDPOINT_VARIABLE, Connection
from vcdl.fleet.gcp.provider import GcpProvider

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_without_the_library_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(google.cloud, "compute_v1", raising=False)
    monkeypatch.setitem(sys.modules, "google.cloud.compute_v1", None)
    with pytest.raises(FleetError, match=r"run: pip install google-cloud-compute"):
        Connection("vcdl-test")


def test_without_credentials_the_error_says_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(FleetNotAuthorised, match="gcloud auth application-default login"):
        GcpProvider(settings_of(tmp_path, text=GCP))


def test_an_unreachable_cloud_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv(ENDPOINT_VARIABLE, f"http://127.0.0.1:{taken.getsockname()[1]}")
    with pytest.raises(FleetUnavailable, match="cannot be reached"):
        GcpProvider(settings_of(tmp_path, text=GCP)).find()


def test_a_sign_in_page_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "compute" / "v1" / "projects" / "vcdl-test" / "aggregated" / "instances"
    page.parent.mkdir(parents=True)
    page.write_text("<html>Please sign in</html>")
    with served_by(partial(SimpleHTTPRequestHandler, directory=tmp_path)) as url:
        monkeypatch.setenv(ENDPOINT_VARIABLE, url)
        with pytest.raises(FleetUnavailable, match="a sign-in page"):
            GcpProvider(settings_of(tmp_path, text=GCP)).find()


def test_the_clock_of_the_cloud_is_in_its_answers(fleet: GcpProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.time
    monkeypatch.setattr("vcdl.fleet.gcp.connection.time", SimpleNamespace(time=lambda: now_s() - 7200))
    fleet.find()
    assert fleet.clock_offset_s == pytest.approx(7200, abs=5)
