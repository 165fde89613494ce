"""Forecasts beside what happened: `python -m benchmarks.bench_planner simulated | crowded | local | policies | ranges`.

simulated: 20 random fleets in virtual time. crowded: 60 with up to 16 slots a shard.
local: `vcdl run` here, 4 models × 2 sizes × 1 and 2 workers.
policies: what four policies pay over traces of spot capacity, `--traces FOLDER`.
ranges: the share of unseen starts whose cost is in the 80 % range, `--traces FOLDER`.
"""

import argparse
import json
import math
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from benchmarks.deadline_policies import POLICIES, least_cost
from vcdl.job import Job, load_job
from vcdl.journal.observer import RunObserver
from vcdl.local.run import run_locally
from vcdl.planner.deadline import RESTART_S, DeadlineTask, follow, uniform_progress
from vcdl.planner.forecast import Choice, Work, forecast, undisturbed_s
from vcdl.planner.throughput import HostType, Servers, Subtask
from vcdl.profile.measure import profile_here
from vcdl.profile.measured_hosts import mean_subtask, measured_servers, measured_types, planned_work
from vcdl.profile.stages import RunProfile
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import freeze
from vcdl.run.reading import journal_of
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.clients import Clients
from vcdl.simulate.simulation import simulate_times

DIGITS = Path(__file__).parent.parent / "examples" / "digits.yaml"
MODELS = {"16": "[16]", "512-512": "[512, 512]", "2000": "[2000]", "64 × 4": "[64, 64, 64, 64]"}


def simulated(count: int) -> Iterator[tuple[str, float, float]]:
    """Name, forecast and virtual seconds of random fleets."""
    for seed in range(count):
        dice = random.Random(seed)
        fleet = ClientFleet(
            seed=seed,
            clients=dice.choice([1, 2, 5, 10, 20]),
            slots=dice.choice([1, 2, 4]),
            subtask_s=dice.uniform(20, 120),
            speed_ratio=dice.choice([1.0, 2.0, 4.0]),
            update_s=dice.choice([0.05, 0.5, 2.0]),
            download_s=dice.uniform(0, 10),
            upload_s=dice.uniform(0, 10),
        )
        shards, epochs = dice.choice([50, 100]), dice.choice([5, 10])
        name = f"{fleet.clients} × {fleet.slots} slots, {fleet.speed_ratio:g}-fold speeds, {fleet.update_s:g} s a fold"
        yield name, *_beside(fleet, shards, epochs)


def crowded(count: int) -> Iterator[tuple[str, float, float]]:
    """The same of fleets in which epochs wait for their slowest subtask."""
    for seed in range(200, 200 + count):  # 0 to 149 were looked at while the forecast was written
        dice = random.Random(seed)
        shards, epochs = dice.choice([10, 20, 40]), dice.choice([5, 10, 20])
        slots_a_shard = dice.choice([0.25, 0.5, 0.75, 1, 1.5, 2, 4, 16])
        fleet = ClientFleet(
            seed=seed,
            clients=max(1, round(shards * slots_a_shard)),
            slots=1,
            subtask_s=dice.uniform(20, 120),
            speed_ratio=dice.choice([1.0, 2.0, 4.0]),
            update_s=0.05,
            download_s=dice.uniform(0, 5),
            upload_s=dice.uniform(0, 5),
        )
        name = f"{slots_a_shard} slots a shard, {shards} shards, {fleet.speed_ratio:g}-fold speeds"
        yield name, *_beside(fleet, shards, epochs)


def _beside(fleet: ClientFleet, shards: int, epochs: int) -> tuple[float, float]:
    """The forecast and the virtual seconds of a job of digits on a fleet."""
    job = load_job(DIGITS, [f"data.shards={shards}", f"stop.epochs={epochs}", "stop.target_accuracy=null"])
    hosts = [
        HostType(f"client {number}", 1, fleet.download_s, fleet.subtask_s / speed, 0.0, fleet.slots, fleet.slots)
        for number, speed in enumerate(Clients(fleet).speeds)
    ]
    work = Work(shards * epochs, Subtask(1.0), shards, end_s=fleet.upload_s + fleet.update_s)
    with tempfile.TemporaryDirectory() as path:
        report = simulate_times(RunFolder(Path(path) / "run"), job, fleet, RunObserver())
    took_s = math.nan if report is None else report.wall_s
    return undisturbed_s(work, hosts, Servers(1, fleet.update_s)), took_s


def local(epochs: int) -> Iterator[tuple[str, float, float]]:
    """Name, forecast from some subtasks and seconds of real runs here, each in a process of its own: in a second run of
    one process nothing of ours is imported any more, while its workers start.
    """
    alone = ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
    for passes in (2, 8):
        for workers in (1, 2):
            for name, units in MODELS.items():
                job = load_job(
                    DIGITS,
                    [
                        f"model={{builtin: {{name: mlp, units: {units}}}}}",
                        f"training.local_epochs={passes}",
                        f"grid.workers={workers}",
                        f"stop.epochs={epochs}",
                        "stop.target_accuracy=null",
                    ],
                )
                measured = alone.submit(profile_here, job).result()
                work = planned_work(measured, job.subtasks, mean_subtask(measured.total()), job.data.shards)
                predicted_s = undisturbed_s(work, measured_types(measured), measured_servers(measured, 1))
                yield (
                    f"mlp {name}, {passes} passes, {workers} workers",
                    predicted_s,
                    alone.submit(run, job).result().history.wall_s,
                )


def run(job: Job) -> RunProfile:
    """A job to its end, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path) / "run")
        folder.create()
        freeze(job, folder)
        run_locally(folder, RunObserver())
        with journal_of(folder) as journal:
            return RunProfile.of(() if journal is None else journal.stream())


def policies(folder: Path) -> None:
    """A line for each policy and room: deadlines kept, cost in that of the cheapest policy that kept each."""
    for hours, room in ((8, 1.5), (24, 1.5), (24, 2.0), (48, 1.25), (24, 1.1)):
        dice, work_s = random.Random(1), hours * 3600.0
        outcomes: dict[str, list[tuple[bool, float]]] = {name: [] for name in POLICIES}
        bound = 0.0
        for file in sorted(folder.glob("*.json")):
            raw = json.loads(file.read_text())
            step_s, is_there = float(raw["metadata"]["gap_seconds"]), [count > 0 for count in raw["data"]]
            steps = int(work_s * room / step_s) + 1
            for _ in range(30):
                first = dice.randrange(len(is_there) - steps)
                window, task = is_there[first : first + steps], DeadlineTask(work_s, room * work_s, 360.0, step_s)
                for name, policy in POLICIES.items():
                    one = follow(policy, window, task, 0.3)
                    outcomes[name].append((one.is_kept, one.cost))
                bound += least_cost(window, task, 0.3)
        best = sum(min(cost for kept, cost in each if kept) for each in zip(*outcomes.values(), strict=True))
        for name, each in outcomes.items():
            kept, paid = sum(kept for kept, _ in each) / len(each), sum(cost for _, cost in each)
            print(f"| {hours} h in {room * hours:g} h | {name} | {kept:.1%} | {paid / best:.3f} | {paid / bound:.3f} |")


def ranges(folder: Path) -> None:
    """A line for each work, deadline and number of machines, each machine in a zone of its own of the same months."""
    months: dict[str, list[tuple[float, list[bool]]]] = {}
    for file in sorted(folder.glob("*.json")):
        raw = json.loads(file.read_text())
        trace = float(raw["metadata"]["gap_seconds"]), [count > 0 for count in raw["data"]]
        months.setdefault(file.name.split("_")[2], []).append(trace)
    for hours, room in ((2, 1.5), (8, 1.5), (24, 1.5), (48, 1.25)):
        for machines in (1, 2, 4):
            dice, work_s = random.Random(7), hours * 3600.0
            work = Work(machines * 1000, Subtask(1.0), machines * 1000)
            hosts = (HostType("machine", machines, fixed_s=work_s / 1000, sample_s=0.0),)
            choice = Choice("", hosts, on_demand_usd_per_h=1.0, spot_usd_per_h=0.3)
            usd = forecast(work, choice, Servers(), room * work_s).usd
            inside, starts = 0, 600
            for _ in range(starts):
                zones = dice.sample(months[dice.choice(sorted(months))], machines)
                step_s = zones[0][0]
                steps = int((1.0 + room) * work_s / step_s) + 3
                first = dice.randrange(len(zones[0][1]) - steps)
                there = [
                    sum(states) / machines
                    for states in zip(*(zone[first : first + steps] for _, zone in zones), strict=True)
                ]
                task = DeadlineTask(work_s, room * work_s, RESTART_S, step_s)
                inside += usd.low <= follow(uniform_progress, there, task, 0.3).cost <= usd.high
            shown = f"{usd.low:.1f} to {usd.high:.1f}"
            print(f"| {hours} h in {room * hours:g} h | {machines} | {shown} | {inside / starts:.1%} |", flush=True)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["simulated", "crowded", "local", "policies", "ranges"])
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces/spot"))
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    of_traces = {"policies": policies, "ranges": ranges}
    if options.what in of_traces:
        of_traces[options.what](options.traces)
        return
    errors, rows = [], {"simulated": simulated(20), "crowded": crowded(60), "local": local(options.epochs)}
    for name, predicted_s, real_s in rows[options.what]:
        errors.append(abs(predicted_s / real_s - 1))
        print(f"| {name} | {predicted_s:.1f} s | {real_s:.1f} s | {predicted_s / real_s - 1:+.1%} |", flush=True)
    within = sum(error <= 0.15 for error in errors) / len(errors)
    print(f"median error {median(errors):.1%}, {within:.0%} within 15 %")


if __name__ == "__main__":
    main()
