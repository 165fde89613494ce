"""Uploads that the server trains again: which ones, what it finds, and what becomes of that in a kill or a loss."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from tests.recorded_run import applied
from tests.trained_run import SHARDS, TrainedRun
from vcdl.client.trainer import TrainerCache
from vcdl.codecs.choose import up_encoding
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    HostConvicted,
    RolledBack,
    StopDecided,
    SubtaskTried,
    UpdateApplied,
    UpdateRefused,
    UploadVerified,
    VerificationEnded,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.journal import Journal
from vcdl.loop.evaluator import Evaluator
from vcdl.run.run import Run
from vcdl.run.staging import Staged, stage
from vcdl.trust.host_record import HostRecord
from vcdl.trust.kept_hosts import load_host_history
from vcdl.trust.retraining import Retraining
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import UpdateHeader, WorkunitName, attempt_after

pytestmark = pytest.mark.keras

TRAINERS = TrainerCache()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return TrainedRun.new(tmp_path_factory.mktemp("trained") / "run")


class Impatient(Evaluator):
    """An evaluator that trains for a moment at a time only."""

    slice_s = 0.0

    def _retraining(self, folder: object) -> Retraining:
        return replace(super()._retraining(self._folder), trainers=TRAINERS, slice_s=self.slice_s)


class Patient(Impatient):
    slice_s = 1000.0


def lengthen(run: Run, update: Path, factor: float) -> None:
    """Make the step of an update so many times as long."""
    up = up_encoding(run.transport, run.layout)
    base, (weights, text) = read_weights(run.folder.snapshot(0), run.layout.size)[0], up.read(update)
    model = run.layout.model.size
    weights[:model] = base[:model] + np.float32(factor) * (weights - base)[:model]
    up.write_upload(update, weights, base, text)


class World:
    """A journal with applied uploads, and the evaluator that follows it."""

    def __init__(self, trained: TrainedRun, path: Path) -> None:
        self.trained = trained
        self.journal = Journal.at(path / "journal.db")
        self.evaluator: Evaluator = Patient(trained.run, self.journal)
        self.version = 0

    def honest(self, shard: int, path: Path, *, part: float = 1.0, rate: float = 0.5) -> tuple[Path, UpdateHeader]:
        """What a client makes of a shard, of a part of it, from a workunit with a rate of its own."""
        run = self.trained.run
        subtask = stage(run, WorkunitName.parse(self.trained.workunit(shard)), rate)
        samples = int(part * run.prepared.shard_samples[shard]) // 16 * 16 if part < 1 else 10**9
        retraining = Retraining(path / f"client{shard}", TRAINERS, 1000.0)
        update = retraining.update("slot", subtask, samples)
        assert update is not None
        return update, UpdateHeader.from_json(up_encoding(run.transport, run.layout).read_header(update))

    def apply(
        self,
        update: Path,
        header: UpdateHeader,
        host: str = "a",
        *,
        rate: float = 0.5,
        kept: bool = True,
        trust: float = 1.0,
    ) -> str:
        """An upload was applied; returns its workunit."""
        self.version += 1
        kept_as = self.trained.run.folder.kept_upload(self.version, header.workunit)
        kept_as.unlink(missing_ok=True)
        if kept:
            kept_as.write_bytes(update.read_bytes())
        self.journal.append(
            WorkunitCreated(header.workunit, 1, rate),
            WorkunitSent(header.workunit, host, 1),
            structs.replace(
                applied(header.workunit, self.version, self.version - 1, header.samples),
                fraction=header.fraction,
                host=host,
                backend=header.backend,
                trust=trust,
            ),
        )
        return header.workunit

    def lie(self, update: Path, header: UpdateHeader, factor: float) -> None:
        """Make a step so many times as long."""
        lengthen(self.trained.run, update, factor)

    def settle(self) -> None:
        while self.evaluator.run_once():
            pass

    def verified(self) -> dict[str, UploadVerified]:
        events = [recorded.event for recorded in self.journal.read()]
        return {event.workunit: event for event in events if isinstance(event, UploadVerified)}

    @property
    def hosts(self) -> dict[str, HostRecord]:
        return load_host_history(self.journal).advance().hosts

    def convicted(self) -> list[HostConvicted]:
        return [row.event for row in self.journal.read() if isinstance(row.event, HostConvicted)]


@pytest.fixture
def world(trained: TrainedRun, tmp_path: Path) -> Iterator[World]:
    world = World(trained, tmp_path)
    yield world
    world.journal.close()


@pytest.mark.parametrize("part", [1.0, 0.5])
def test_an_honest_upload_agrees_to_the_last_bit_a_partial_one_as_well(
    world: World, tmp_path: Path, part: float
) -> None:
    workunit = world.apply(*world.honest(0, tmp_path, part=part))
    world.settle()
    found = world.verified()[workunit]
    assert (found.host, found.up_to, found.agrees, found.apart) == ("a", 1, True, 0.0)
    assert found.train_s > 0
    assert world.convicted() == []
    assert not world.trained.run.folder.verify.exists()


@pytest.mark.parametrize("factor", [-1.0, 0.03, 1.3, 0.0])
def test_a_step_of_its_own_length_or_way_is_a_lie_and_its_host_is_convicted(
    world: World, tmp_path: Path, factor: float
) -> None:
    update, header = world.honest(0, tmp_path)
    world.lie(update, header, factor)
    lie = world.apply(update, header, "liar")
    world.settle()
    assert not world.verified()[lie].agrees
    assert world.verified()[lie].apart == pytest.approx(abs(factor - 1) / max(1, abs(factor)), rel=0.05)
    assert world.convicted() == [], "nobody has shown that this server can train the job as clients do"
    world.apply(*world.honest(1, tmp_path), "honest")
    world.settle()
    assert world.convicted() == [HostConvicted("liar", lie, (1,), (lie,), for_good=False)]


def test_a_liar_that_brings_most_does_not_keep_the_server_from_agreeing_with_another(
    world: World, tmp_path: Path
) -> None:
    for shard in range(3):
        update, header = world.honest(shard, tmp_path)
        world.lie(update, header, -1.0)
        world.apply(update, header, "liar")
        world.journal.append(UpdateRefused(world.trained.workunit(9 + shard), "against_others", "", 1, host="liar"))
        world.evaluator.run_once()
    world.apply(*world.honest(4, tmp_path), "honest")
    world.settle()
    assert [(event.host, event.versions) for event in world.convicted()] == [("liar", (1, 2, 3))]
    assert len(world.verified()) == 2


def test_a_few_samples_under_a_header_that_claims_all_are_a_lie(world: World, tmp_path: Path) -> None:
    update, header = world.honest(0, tmp_path, part=0.2)
    whole = world.trained.run.prepared.shard_samples[0]
    lie = world.apply(update, replace(header, samples=whole, fraction=1.0), "liar")
    world.settle()
    assert not world.verified()[lie].agrees


def test_a_rate_that_was_not_the_workunits_is_a_lie(world: World, tmp_path: Path) -> None:
    lie = world.apply(*world.honest(0, tmp_path, rate=1.0), "liar", rate=0.5)
    world.settle()
    assert not world.verified()[lie].agrees


def test_versions_come_first_and_a_training_that_is_interrupted_goes_on(world: World, tmp_path: Path) -> None:
    world.evaluator = Impatient(world.trained.run, world.journal)
    workunit = world.apply(*world.honest(0, tmp_path))
    assert world.evaluator.run_once(), "it has begun"
    world.journal.append(EvaluationWanted(0, 1, "validation"))
    world.evaluator.run_once()
    assert any(isinstance(recorded.event, VersionEvaluated) for recorded in world.journal.read())
    assert world.verified() == {}
    world.evaluator = Patient(world.trained.run, world.journal)  # the first one was killed
    world.settle()
    assert world.verified()[workunit].agrees


def test_what_a_killed_evaluator_left_of_one_upload_is_not_taken_for_anothers(world: World, tmp_path: Path) -> None:
    folder = world.trained.run.folder
    world.evaluator = Impatient(world.trained.run, world.journal)
    begun = world.apply(*world.honest(0, tmp_path))
    assert world.evaluator.run_once()
    assert folder.verify.exists(), "it has begun"
    folder.kept_upload(1, begun).unlink()
    other = world.apply(*world.honest(1, tmp_path), "b")
    world.evaluator = Patient(world.trained.run, world.journal)
    world.settle()
    assert world.verified()[other].agrees


def test_of_the_hosts_that_are_known_no_more_is_trained_again_than_the_budget_allows(
    world: World, tmp_path: Path
) -> None:
    for shard in range(SHARDS):
        world.apply(*world.honest(shard, tmp_path))
        world.settle()
    assert len(world.verified()) == 1 + 3, "a quarter of twelve, beside the first"
    assert {event.host for event in world.verified().values()} == {"a"}


def test_a_host_that_was_refused_is_looked_at_again(world: World, tmp_path: Path) -> None:
    for shard in range(4):
        world.apply(*world.honest(shard, tmp_path), "ab"[shard % 2])
    world.settle()
    before = len(world.verified())
    world.journal.append(UpdateRefused(world.trained.workunit(9), "step_too_long", "", 1, host="b"))
    workunit = world.apply(*world.honest(5, tmp_path), "b")
    world.settle()
    assert len(world.verified()) == before + 1
    assert workunit in world.verified()


def test_uploads_that_are_gone_belong_to_nobody_or_come_too_late_are_not_trained_again(
    world: World, tmp_path: Path
) -> None:
    upload = world.honest(0, tmp_path)
    world.apply(*upload, kept=False)
    world.settle()
    world.apply(*world.honest(1, tmp_path))
    world.journal.append(StopDecided("epochs", 3))
    world.settle()
    assert world.verified() == {}


def test_another_backend_is_compared_only_where_the_model_draws_no_random_numbers(world: World, tmp_path: Path) -> None:
    update, header = world.honest(0, tmp_path)
    up = up_encoding(world.trained.run.transport, world.trained.run.layout)
    weights, _ = up.read(update)
    up.write_upload(update, weights, world.trained.base, replace(header, backend="another").to_json())
    verification = world.evaluator._verification
    assert verification is not None
    verification._draws = True
    other = world.apply(update, replace(header, backend="another"))
    world.settle()
    assert not world.verified()[other].is_comparable
    assert world.hosts["a"].is_incomparable
    verification._draws = False
    workunit = world.apply(update, replace(header, workunit=world.trained.workunit(0, epoch=2)))
    world.settle()
    assert workunit in world.verified()


# -- which one is drawn


def drawn(
    world: World, *, uploads: str, cosines: dict[str, float] | None = None, before: Sequence[Event] = ()
) -> str | None:
    """The workunit that is trained again next, of uploads of these hosts in order; workunit n is the n-th upload."""
    world.journal.append(*before)
    for number, host in enumerate(uploads):
        workunit = world.trained.workunit(number)
        cosine = (cosines or {}).get(workunit)
        row = UpdateApplied(
            workunit, number + 1, 0, number, 0.5, 10, 1.0, 1.0, 1.0, 1, host, cosine=cosine, reference_cosine=cosine
        )
        world.journal.append(WorkunitSent(workunit, host, 1), row)
    world.evaluator._follow()
    assert world.evaluator._verification is not None
    update = world.evaluator._verification._next()
    return None if update is None else update.workunit


def agreed(host: str) -> UploadVerified:
    return UploadVerified("earlier " + host, host, 0, 0.0, True, 1.0)


AGREED = [agreed(host) for host in "fsl"]


def test_the_host_that_brought_most_comes_first_by_one_of_its_last_uploads(world: World) -> None:
    assert drawn(world, uploads="fffsffs", before=AGREED) in {world.trained.workunit(number) for number in (2, 4, 5)}


def test_what_looks_strange_comes_before_all_others_the_newest_first(world: World) -> None:
    strange = [
        UpdateApplied(world.trained.workunit(n), n + 1, 0, n, 0.5, 10, 1.0, 1.0, 1.0, 1, "s", trust=0.02)
        for n in (0, 1)
    ]
    assert drawn(world, uploads="", before=[*AGREED, *strange]) == world.trained.workunit(1)


def test_what_looks_strange_comes_in_turn_with_others_spends_no_budget_and_speaks_for_nothing_else(
    world: World, tmp_path: Path
) -> None:
    """A host may look strange as often as it likes, and agree: a variable that hardly moves is within rounding. Nothing
    else was trained again then, and all that it had brought was believed.
    """
    world.journal.append(*AGREED)
    update, header = world.honest(0, tmp_path)
    usual = world.apply(*world.honest(2, tmp_path), "s")
    other = world.apply(*world.honest(3, tmp_path), "new")
    strange = world.apply(update, header, "s", trust=0.02)
    world.evaluator.run_once()
    assert list(world.verified()) == [*(event.workunit for event in AGREED), strange]
    assert world.hosts["s"].vouched == 0
    assert usual in [one.workunit for one in world.hosts["s"].unverified]
    world.apply(*world.honest(4, tmp_path), "s", trust=0.02)
    world.evaluator.run_once()
    assert other in world.verified()


def test_what_agrees_with_others_counts_less(world: World) -> None:
    agrees = {world.trained.workunit(number): 0.9 for number in range(4)}
    assert drawn(world, uploads="ffffs", cosines=agrees, before=AGREED) == world.trained.workunit(4)


def test_a_host_of_which_none_agreed_yet_comes_before_one_that_brought_twice_as_much(world: World) -> None:
    assert drawn(world, uploads="fnf", before=AGREED) == world.trained.workunit(1)


def test_what_is_dropped_with_a_liars_uploads_may_still_show_another(world: World) -> None:
    assert drawn(world, uploads="ffs", before=AGREED) is not None
    assert drawn(world, uploads="", before=[RolledBack(4, 0, (1, 2, 3), 3, 0.0, 0.0, "l")]) is not None
    assert drawn(world, uploads="", before=[RolledBack(5, 0, (1, 2, 3), 4, 0.1, 0.9)]) is None


def test_but_not_once_a_host_was_found_that_turned(world: World) -> None:
    turned = [*AGREED, HostConvicted("l", "a lie", ())]
    assert drawn(world, uploads="fnf", before=turned) != world.trained.workunit(1)


def test_a_host_that_turned_has_more_drawn_than_the_budget_allows(world: World) -> None:
    beyond = [UploadVerified(f"earlier {number}", "f", 0, 0.0, True, 1.0) for number in range(2)]
    assert drawn(world, uploads="ffs", before=[*AGREED, *beyond]) is None
    assert drawn(world, uploads="", before=[HostConvicted("l", "a lie", ())]) is not None


def test_a_job_whose_measure_falls_has_more_drawn_and_no_host_that_agreed_is_safer(world: World) -> None:
    measured = [VersionEvaluated(n, n, "validation", 9, 0.5, 0.0, {"accuracy": a}) for n, a in enumerate([0.8, 0.73])]
    beyond = [UploadVerified(f"earlier {number}", "f", 0, 0.0, True, 1.0) for number in range(2)]
    assert drawn(world, uploads="ffs", before=[*AGREED, *beyond, *measured]) is None
    fell = VersionEvaluated(3, 3, "validation", 9, 0.5, 0.0, {"accuracy": 0.7})
    assert drawn(world, uploads="", before=[fell]) in {world.trained.workunit(number) for number in range(2)}
    new = world.trained.workunit(5)
    row = UpdateApplied(new, 9, 0, 8, 0.5, 10, 1.0, 1.0, 1.0, 1, "new")
    assert drawn(world, uploads="", before=[row]) != new
    better = VersionEvaluated(4, 4, "validation", 9, 0.5, 0.0, {"accuracy": 0.8})
    assert drawn(world, uploads="", before=[better]) == new


def test_before_any_agreed_the_one_comes_first_that_the_servers_own_step_speaks_for(world: World) -> None:
    """What the first uploads have in common says nothing: they may all be lies."""
    cosines = {world.trained.workunit(number): [0.1, 0.4, 0.2][number] for number in range(3)}
    assert drawn(world, uploads="abc", cosines=cosines) == world.trained.workunit(1)


# -- a host is suspected of nothing that rounding may do


class Sensitive(Patient):
    """An evaluator of a job that rounding drives apart: its second training of a subtask goes another way."""

    def _retraining(self, folder: object) -> Retraining:
        usual, run = super()._retraining(folder), Run.open(self._folder)

        class Scattering(Retraining):
            def update(self, slot_name: str, staged: Staged, samples: int | None = None) -> Path | None:
                update = super().update(slot_name, staged, samples)
                if slot_name == "scattered" and update is not None:
                    lengthen(run, update, 1.1)
                return update

        return Scattering(usual.folder, usual.trainers, usual.slice_s)


@pytest.mark.parametrize(("evaluator", "agrees"), [(Patient, False), (Sensitive, True)])
def test_a_difference_that_a_second_training_shows_as_well_is_no_lie_also_after_an_exact_one(
    world: World, tmp_path: Path, evaluator: type[Evaluator], agrees: bool
) -> None:
    """A host with the server's own processor agrees to the last bit, which says nothing of other processors."""
    world.evaluator = evaluator(world.trained.run, world.journal)
    exact = world.apply(*world.honest(0, tmp_path), "same")
    world.settle()
    assert world.verified()[exact].apart == 0.0
    update, header = world.honest(1, tmp_path)
    world.lie(update, header, 1.3)
    other = world.apply(update, header, "other")
    world.settle()
    assert world.verified()[other].agrees is agrees


# -- before the job ends


def test_before_a_job_ends_its_last_uploads_are_looked_at_within_a_bound(world: World, tmp_path: Path) -> None:
    for shard in range(SHARDS):
        world.apply(*world.honest(shard, tmp_path))
        world.settle()
    assert max(event.up_to for event in world.verified().values()) < SHARDS
    world.journal.append(*(EpochClosed(n, SHARDS) for n in range(1, world.trained.run.job.stop.epochs + 1)))
    world.settle()
    assert max(event.up_to for event in world.verified().values()) == SHARDS
    ended = [row.event for row in world.journal.read() if isinstance(row.event, VerificationEnded)]
    assert ended == [VerificationEnded(SHARDS)]


# -- what hosts keep failing at


@pytest.fixture
def failing(world: World) -> str:
    """An open attempt at a subtask at which as many failed as may."""
    for attempt in range(world.trained.run.job.grid.tries + 1):
        workunit = world.trained.workunit(0, attempt=attempt)
        world.journal.append(WorkunitCreated(workunit, 1, 0.5))
        if attempt < world.trained.run.job.grid.tries:
            world.journal.append(UpdateRefused(workunit, "unreadable", "", 1, host=f"new-{attempt}"))
    return workunit


def tried(world: World) -> list[SubtaskTried]:
    return [row.event for row in world.journal.read() if isinstance(row.event, SubtaskTried)]


def test_the_server_trains_what_hosts_keep_failing_at(world: World, failing: str) -> None:
    world.settle()
    own = str(replace(WorkunitName.parse(failing), attempt=WorkunitName.parse(failing).own_attempt))
    (event,) = tried(world)
    assert (event.workunit, event.error) == (own, "")
    path = world.trained.run.folder.own_upload(own)
    run = world.trained.run
    header = UpdateHeader.from_json(up_encoding(run.transport, run.layout).read_header(path))
    assert (header.workunit, header.samples) == (own, run.prepared.shard_samples[0])
    world.settle()
    assert len(tried(world)) == 1, "until it is folded in"
    path.unlink()


def test_a_shard_that_the_server_cannot_train_either_is_told(world: World, failing: str) -> None:
    shard = world.trained.run.folder.shard(0)
    content = shard.read_bytes()
    shard.write_bytes(content[:100])
    try:
        world.settle()
    finally:
        shard.write_bytes(content)
    (event,) = tried(world)
    assert event.error
    assert not world.trained.run.folder.own_upload(event.workunit).exists()


def test_what_a_host_brings_meanwhile_ends_the_servers_own_attempt(world: World, failing: str) -> None:
    world.evaluator = Impatient(world.trained.run, world.journal)
    while not world.trained.run.folder.verify.exists():
        assert world.evaluator.run_once()
    world.journal.append(structs.replace(applied(failing, 1, 0, 10), host="honest"))
    world.settle()
    assert tried(world) == []


@pytest.mark.parametrize("failures", [1_000, 12_345])
def test_however_often_hosts_fail_the_servers_own_attempt_is_of_the_same_subtask(world: World, failures: int) -> None:
    """A host may fail many times a second; attempts that ran into the next turn held a job up for good."""
    attempt = 0
    for _ in range(failures):
        attempt = attempt_after(attempt)
    workunit = world.trained.workunit(0, attempt=attempt)
    world.journal.append(WorkunitCreated(workunit, 1, 0.5))
    world.journal.append(*[UpdateRefused(f"{workunit}{number}", "unreadable", "", 1) for number in range(9)])
    world.settle()
    (event,) = tried(world)
    own, failed = WorkunitName.parse(event.workunit), WorkunitName.parse(workunit)
    assert (own.subtask, failed.subtask, failed.attempt_in_turn) == ("e0001_s000", "e0001_s000", failures)
    assert own.is_own
    assert not failed.is_own


def test_while_an_update_of_the_servers_own_waits_hosts_that_fail_on_bring_no_second_one(
    world: World, failing: str
) -> None:
    world.settle()
    (event,) = tried(world)
    world.journal.append(*[UpdateRefused(f"{failing}{number}", "unreadable", "", 1) for number in range(9)])
    world.journal.append(WorkunitFailed(failing, "it gave up"))
    world.settle()
    created = [row.event.workunit for row in world.journal.read() if isinstance(row.event, WorkunitCreated)]
    assert created[-1] == event.workunit
    world.trained.run.folder.own_upload(event.workunit).unlink()
