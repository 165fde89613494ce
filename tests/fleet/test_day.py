"""A day of 50 instances, 5 % of them preempted each hour, two pools without capacity: on moto and our fake of GCP."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.aws.moto_cloud import ACCOUNT, MotoCloud, moto_cloud
from tests.fleet.day import INSTANCES, Day, Truth, by_hand, live_a_day
from tests.fleet.fake_cloud import Clock
from tests.fleet.fleet_files import settings_of
from tests.fleet.gcp.fake_compute import FakeCompute
from tests.fleet.gcp.fake_gce import FakeGce
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.controller import Controller
from vcdl.fleet.cost import cost_of
from vcdl.fleet.folder import FleetFolder
from vcdl.fleet.gcp.connection import ENDPOINT_VARIABLE
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.provider import Provider, SweepPace
from vcdl.fleet.settings import FleetSettings

pytestmark = pytest.mark.server

AWS = """\
name: day
cloud: aws
project: {url: https://boinc.example.org/mine/, account_key_env: VCDL_TEST_KEY}
capacity: {unit: instance, target: 50}
lease_s: 86400  # passes are skipped for hours
instances: {types: [t3.2xlarge, c5.2xlarge]}
places:
  - {region: us-east-1}
"""
GCP = """\
name: day
cloud: gcp
gcp_project: vcdl-test
project: {url: https://boinc.example.org/mine/, account_key_env: VCDL_TEST_KEY}
capacity: {unit: instance, target: 50}
lease_s: 86400  # passes are skipped for hours
instances: {types: [e2-standard-8, n2-standard-8]}
places:
  - {region: us-central1, zones: [us-central1-a, us-central1-b]}
"""
START_S = datetime(2026, 11, 21, tzinfo=UTC).timestamp()


@dataclass
class AwsBooks:
    """Moto under a virtual clock, with the endings that moto lacks."""

    cloud: MotoCloud
    clock: Clock
    preempted_s: dict[str, float] = field(default_factory=dict)
    _asked: Sequence[str] = ()
    _forgotten: list[Any] = field(default_factory=list)

    def live(self) -> list[str]:
        return sorted(i.id for i in self._all() if i._state.name in ("pending", "running"))

    def preempt(self, id: str) -> None:
        self.cloud.preempt(id)
        self.preempted_s[id] = self.clock.now_s
        for instance in self._all():  # AWS shows a terminated instance for an hour
            if self.preempted_s.get(instance.id, self.clock.now_s) < self.clock.now_s - 3600:
                self._forgotten.append(instance)
                self.cloud.forget(instance.id)

    def lives(self) -> list[Truth]:
        """All instances: preempted ones with the time noted here, others with moto's."""
        return [
            Truth(i.instance_type, i.launch_time.timestamp(), ended_s or self.ended_s(i), ended_s is not None)
            for i in (*self._all(), *self._forgotten)
            for ended_s in [self.preempted_s.get(i.id)]
        ]

    @staticmethod
    def ended_s(instance: Any) -> float:
        words = instance._reason.partition("(")[2].rstrip(")")
        return datetime.strptime(words, "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC).timestamp()

    def name_requests(self, parsed: dict[str, Any], **_: Any) -> None:
        """Name the spot request of each instance, which moto does not."""
        for reservation in parsed.get("Reservations", ()):
            for item in reservation["Instances"]:
                item["SpotInstanceRequestId"] = f"sir-of-{item['InstanceId']}"

    def note_asked(self, params: dict[str, Any], **_: Any) -> None:
        filters = {one["Name"]: one["Values"] for one in params.get("Filters", ())}
        self._asked = filters.get("spot-instance-request-id", ())

    def add_end_times(self, parsed: dict[str, Any], **_: Any) -> None:
        """Let the spot request of a preempted instance tell when it ended, as on AWS."""
        if self._asked:
            parsed["SpotInstanceRequests"] = [
                {
                    "SpotInstanceRequestId": request,
                    "Status": {
                        "Code": "instance-terminated-no-capacity",
                        "UpdateTime": datetime.fromtimestamp(self.preempted_s[request.removeprefix("sir-of-")], UTC),
                    },
                }
                for request in self._asked
                if request.removeprefix("sir-of-") in self.preempted_s
            ]

    def answer_in_time(self, parsed: dict[str, Any], **_: Any) -> None:
        parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = format_datetime(
            datetime.fromtimestamp(self.clock.now_s, UTC)
        )

    def _all(self) -> list[Any]:
        from moto.ec2.models import ec2_backends

        return [
            instance
            for backend in ec2_backends[ACCOUNT].values()
            for reservation in backend.reservations.values()
            for instance in reservation.instances
        ]


@dataclass
class GcpBooks:
    """The fake Compute Engine."""

    compute: FakeCompute

    def live(self) -> list[str]:
        return list(self.compute.ids())

    def preempt(self, id: str) -> None:
        self.compute.preempt(id)

    def lives(self) -> list[Truth]:
        return [
            Truth(life.type, life.launched_s, life.ended_s or 0.0, life.ending == "compute.instances.preempted")
            for life in self.compute.lives
        ]


@pytest.fixture
def clock() -> Clock:
    return Clock(START_S)


@pytest.fixture
def aws(clock: Clock, one_region: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsBooks]:
    with moto_cloud() as cloud:
        books = AwsBooks(cloud, clock)
        monkeypatch.setattr(
            "moto.ec2.models.instances.utcnow", lambda: datetime.fromtimestamp(clock.now_s, UTC).replace(tzinfo=None)
        )
        for event, act in (
            ("after-call.ec2.DescribeInstances", books.name_requests),
            ("provide-client-params.ec2.DescribeSpotInstanceRequests", books.note_asked),
            ("after-call.ec2.DescribeSpotInstanceRequests", books.add_end_times),
            ("after-call.ec2.CreateFleet", books.answer_in_time),
        ):
            cloud.session.events.register(event, act)
        cloud.empty |= {("t3.2xlarge", "us-east-1a"), ("c5.2xlarge", "us-east-1b")}
        cloud.withhold_capacity()
        yield books


@pytest.fixture
def gcp(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpBooks]:
    with FakeGce(clock=clock) as server:
        monkeypatch.setenv(ENDPOINT_VARIABLE, server.url)
        server.compute.exhaust("us-central1-a", "e2-standard-8")
        server.compute.exhaust("us-central1-b", "n2-standard-8")
        yield GcpBooks(server.compute)


def controller_of(settings: FleetSettings, provider: Provider, folder: FleetFolder, clock: Clock) -> Controller:
    return Controller(settings, provider, folder, lambda: "#cloud-config\n", clock)


def check(day: Day, controller: Controller, provider: Provider, live: list[str]) -> None:
    """Check the conditions that hold on every such day."""
    print(day.line())
    assert 35 <= day.preempted <= 90  # 60 are expected
    assert day.most_live == INSTANCES
    assert day.below_target_s <= day.preempted * 30 + 60  # each lost instance until the next pass, and the first launch
    assert live == []
    errors: list[str] = []
    assert (controller.take_down(errors.append), errors) == ((), [])
    assert provider.look().lines() == ()
    assert not any("mistake" in line for line in day.lines)


def check_money(folder: FleetFolder, clock: Clock, truth: Fraction, day: Day) -> None:
    """Check the ledger to the last digit."""
    ledger = Ledger(folder.ledger_file)
    cost = cost_of(ledger, clock.now_s)
    print(f"{cost.spot_usd:.6f} $ by the ledger, {float(truth):.6f} $ by hand")
    assert (cost.instances, cost.preempted, cost.live) == (INSTANCES + day.preempted, day.preempted, 0)
    assert sum(life.charge().spot_usd for life in ledger.history().until(clock.now_s)) == truth
    assert abs(Fraction(cost.spot_usd - cost.extras_usd) - truth) < Fraction(1, 10**20)


@pytest.mark.timeout(900)  # half a minute on an idle machine
@pytest.mark.nightly
def test_a_day_on_aws(aws: AwsBooks, clock: Clock, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, text=AWS)
    provider = AwsProvider(settings, aws.cloud.session, SweepPace(every_s=0.01, at_most_s=60.0))
    folder = FleetFolder.beside(tmp_path / "fleet.yaml", "day")
    controller = controller_of(settings, provider, folder, clock)
    day = live_a_day(controller, aws, clock)
    check(day, controller, provider, aws.live())
    truth = by_hand(aws.lives(), {"t3.2xlarge": "0.3328", "c5.2xlarge": "0.34"}, free_within_s=3600)
    check_money(folder, clock, truth, day)


@pytest.mark.timeout(900)
def test_a_day_on_gcp(gcp: GcpBooks, clock: Clock, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, text=GCP)
    provider = GcpProvider(settings, clock=clock, pace=SweepPace(0.02, 5.0, 1))
    folder = FleetFolder.beside(tmp_path / "fleet.yaml", "day")
    controller = controller_of(settings, provider, folder, clock)
    day = live_a_day(controller, gcp, clock)
    check(day, controller, provider, gcp.live())
    truth = by_hand(gcp.lives(), {"e2-standard-8": "0.268046", "n2-standard-8": "0.388472"}, free_within_s=60)
    check_money(folder, clock, truth, day)
