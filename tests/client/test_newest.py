"""A task that waited starts from the newest weights that its project has signed, and otherwise from its own."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.workunit_folder import SIZE, WORKUNIT
from tests.http_server import Quiet, served_by
from tests.trickle import IN_BODY, IN_HEADERS, Trickle
from tests.weights_key import KEY, OTHER_KEY
from vcdl.boinc.grid.weights_key import WeightsKey
from vcdl.client import newest
from vcdl.client.newest import NewestWeights, begin
from vcdl.wire.layout import Layout, Variable
from vcdl.wire.newest import Newest
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import write_weights

pytestmark = pytest.mark.server

LAYOUT = Layout((Variable("w", (SIZE,), 0),))
CAME, NEWER = WORKUNIT.base_version, WORKUNIT.base_version + 8


class _Files(Quiet, SimpleHTTPRequestHandler):
    pass


@dataclass
class Web:
    """A project's web server, with the newest weights of the workunit's job."""

    folder: Path
    url: str
    key: WeightsKey = KEY
    says: dict[str, Any] = field(default_factory=dict)

    def publish(self, version: int = NEWER, header_version: int | None = None) -> None:
        path = self.folder / "weights.h5"
        header = ParamsHeader(WORKUNIT.job, version if header_version is None else header_version, LAYOUT.fingerprint)
        write_weights(path, np.full(SIZE, version, np.float32), header.to_json())
        content = path.read_bytes()
        newest = Newest(
            WORKUNIT.job, LAYOUT.fingerprint, version, f"{self.url}/weights.h5", len(content),
            hashlib.sha256(content).hexdigest(),
        )  # fmt: skip
        (self.folder / "newest.json").write_text(self.key.sign(replace(newest, **self.says).to_json()))


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    """A slot with what a task needs to begin, without the model."""
    (tmp_path / "slot").mkdir()
    header = ParamsHeader(WORKUNIT.job, CAME, LAYOUT.fingerprint)
    write_weights(tmp_path / "slot" / "params.h5", np.zeros(SIZE, np.float32), header.to_json())
    return tmp_path / "slot"


@pytest.fixture
def web(tmp_path: Path, slot: Path) -> Iterator[Web]:
    (tmp_path / "web").mkdir()
    with served_by(partial(_Files, directory=str(tmp_path / "web"))) as url:
        yield Web(tmp_path / "web", url)


def begun_from(slot: Path, web: Web, *, may_use_network: bool = True) -> int:
    """The version that a task begins with."""
    told = replace(WORKUNIT, newest=f"{web.url}/newest.json")
    NewestWeights(KEY.public, lambda: may_use_network).fetch(slot, told, LAYOUT)
    start = begin(slot, told, LAYOUT)
    assert (start.weights == (0 if start.version == CAME else start.version)).all()
    return start.version


@pytest.mark.parametrize(
    "says",
    [
        {"job": "another"}, {"layout": "another"}, {"sha256": "0" * 64}, {"size_bytes": 10}, {"size_bytes": 100_000},
        {"size_bytes": 1 << 40}, {"url": "http://127.0.0.1:9/nobody"},
    ],
)  # fmt: skip
def test_what_is_not_what_was_signed_is_not_taken(slot: Path, web: Web, says: dict[str, Any]) -> None:
    web.says = says
    web.publish()
    assert begun_from(slot, web) == CAME


@pytest.mark.parametrize(
    ("key", "published"),
    [(KEY, {"version": CAME - 1}), (OTHER_KEY, {}), (KEY, {"header_version": NEWER + 1})],
    ids=["an older statement that is played back", "of another project", "of another version than stated"],
)
def test_weights_that_are_not_the_projects_newest_are_not_taken(
    slot: Path, web: Web, key: WeightsKey, published: dict[str, int]
) -> None:
    web.key = key
    web.publish(**published)
    assert begun_from(slot, web) == CAME


@pytest.mark.parametrize("begin_of_answer", [IN_HEADERS, IN_BODY])
@pytest.mark.parametrize("is_statement", [True, False])
def test_a_byte_now_and_then_does_not_hold_a_task(
    slot: Path, web: Web, begin_of_answer: bytes, is_statement: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "_ALTOGETHER_S", 0.5)
    slow = Trickle(begin_of_answer)
    web.says = {} if is_statement else {"url": f"{slow.url}/weights.h5"}
    web.publish()
    told = replace(WORKUNIT, newest=f"{(slow if is_statement else web).url}/newest.json")
    NewestWeights(KEY.public, lambda: True).fetch(slot, told, LAYOUT)
    assert begin(slot, told, LAYOUT).version == CAME
    assert not slow.has_ended.is_set()
    assert not list(slot.glob("*newest*"))


def test_the_volunteers_network_is_left_alone_when_they_say_so(slot: Path, web: Web) -> None:
    web.publish()
    assert begun_from(slot, web, may_use_network=False) == CAME


def test_an_address_that_is_none_of_the_web_is_not_fetched(slot: Path, web: Web) -> None:
    web.publish()
    told = replace(WORKUNIT, newest=(web.folder / "newest.json").as_uri())
    NewestWeights(KEY.public, lambda: True).fetch(slot, told, LAYOUT)
    assert begin(slot, told, LAYOUT).version == CAME


def test_a_task_that_is_started_again_keeps_its_weights(slot: Path, web: Web) -> None:
    web.publish()
    begun_from(slot, web)
    web.publish(NEWER + 5)
    assert begun_from(slot, web) == NEWER
    (slot / "newest.h5").write_bytes(b"damaged")
    assert begun_from(slot, web) == CAME
