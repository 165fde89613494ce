"""From a cloud's notice to the project: the fate of a subtask of the paper's ResNet (4 972 746 weights, 20 MB
per update), and its times.

    python -m benchmarks.bench_notice [--cloud aws gcp] [--rounds 3]

The agent and Debian's BOINC client are real; BOINC's server on loopback and the metadata service are stand-ins.
The subtask trains as always in batches of 32, and the notice comes at a random moment. AWS is polled every 5 s,
which is part of the time.
"""

import argparse
import gzip
import hashlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from tests.boinc.boinc_client import BoincClient
from tests.boinc.standin import Database, StandinProject, StandinServer
from tests.fleet.machine.machine import Machine
from tests.fleet.machine.metadata import AwsMetadata, GcpMetadata, served
from tests.store_servers import start_mariadb
from vcdl.boinc.project.app_version import ClientFiles
from vcdl.boinc.runtime.platforms import LINUX
from vcdl.client.model import load_model
from vcdl.files.shipped import shipped_folder
from vcdl.job.model import ModelSettings
from vcdl.models.build import build_model_json, initial_weights
from vcdl.wire.layout import Layout
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import Named, Normalisation, Training, Workunit

SAMPLES = 900
"""Samples of a shard: CIFAR-10 in 50 shards."""
TRAINING = Training(
    optimizer=Named("adam"),
    learning_rate=0.001,
    batch_size=32,
    local_epochs=1000,
    loss=Named("sparse_categorical_crossentropy"),
    metrics=(),
    normalisation=Normalisation((1 / 255,), (-0.5,)),
)
TIMEOUT_S = 900.0
STEPS = ("heard", "written", "uploaded", "reported")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cloud", nargs="*", choices=("aws", "gcp"), default=["aws", "gcp"])
    parser.add_argument("--rounds", type=int, default=3, help="of each cloud")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vcdl-bench-") as folder, ExitStack() as stack:
        bench = Bench(Path(folder), stack)
        for cloud in options.cloud:
            rounds = [bench.measure(cloud, number) for number in range(options.rounds)]
            for number, step in enumerate(STEPS):
                times_s = [times[number] for times in rounds]
                print(f"{cloud}  {step:10} median {statistics.median(times_s):5.1f} s   most {max(times_s):5.1f} s")


class Bench:
    """A project with one client."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        mariadb = stack.enter_context(start_mariadb(folder))
        self._project = StandinProject.make(folder / "project", Database.of(mariadb))
        self._publish()
        self._inputs = self._write_inputs()
        stack.enter_context(StandinServer(self._project))
        self._client = BoincClient(
            folder / "client",
            self._project.url,
            self._project.account_key,
            environment={"VCDL_PYTHON": sys.executable},
        )
        override = self._client.folder / "global_prefs_override.xml"  # from the tests: a checkpoint each second
        override.write_text(override.read_text().replace("<disk_interval>1<", "<disk_interval>60<"))
        stack.enter_context(self._client)

    def measure(self, cloud: str, number: int) -> tuple[float, float, float, float]:
        """Seconds from the notice to each of STEPS."""
        workunit = Workunit(
            job="bench",
            epoch=1,
            shard=number + 100 * (cloud == "gcp"),
            attempt=0,
            base_version=0,
            seed=1,
            training=TRAINING,
        )
        client, task = self._client, f"{workunit.name}_0"
        metadata = AwsMetadata() if cloud == "aws" else GcpMetadata()
        with served(metadata):
            boinccmd = [shutil.which("boinccmd"), "--unix_domain"]
            machine = Machine(
                self._folder / workunit.name,
                metadata,
                self._project.url,
                boinc_folder=str(client.folder),
                boinccmd=boinccmd,
            )
            with machine:
                self._create(workunit)
                # boinccmd estimates a fraction before the first one: only a checkpoint proves that it trains.
                checkpoints = client.folder.glob
                client.wait_until(
                    lambda: any(checkpoints("slots/*/checkpoint.npz")), "it trains", timeout_s=TIMEOUT_S, asking=True
                )
                time.sleep(random.uniform(0, 10))
                began_s = time.monotonic()
                metadata.notify()

                def after_s(condition: Callable[[], object], what: str) -> float:
                    client.wait_until(condition, what, timeout_s=TIMEOUT_S)
                    return time.monotonic() - began_s

                finish_now = client.project_folder / "vcdl_finish_now"
                times_s = (
                    after_s(finish_now.exists, "the agent has heard"),
                    after_s(lambda: not client.task_pids(), "the update is written"),
                    after_s(lambda: f"Finished upload of {task}" in client.log, "the update is uploaded"),
                    after_s(lambda: task not in client.tasks(), "it is reported"),
                )
                metadata.withdraw()
                machine.wait_until(lambda: not finish_now.exists(), "the agent lets work begin again")
        return times_s

    def _publish(self) -> None:
        folder = self._project.path / "apps" / "vcdl" / "1.00" / LINUX.boinc
        folder.mkdir(parents=True)
        for name, (content, mode) in ClientFiles.build().contents.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(mode)
        self._project.update_versions()
        for name in ("vcdl_in.xml", "vcdl_out.xml"):
            text = (shipped_folder("templates") / name).read_text().replace("@max_nbytes@", "100000000")
            (self._project.path / "templates" / name).write_text(text)

    def _write_inputs(self) -> list[str]:
        """Stage model, weights and shard; returns their names."""
        settings = ModelSettings.model_validate({"builtin": {"name": "resnet_v2", "depth": 164}})
        model_json = build_model_json(settings, (32, 32, 3), 10)
        folder = self._folder / "inputs"
        folder.mkdir()
        (folder / "model.json").write_text(model_json)
        header = ParamsHeader("bench", 0, Layout.of(load_model(model_json)).fingerprint)
        write_weights(folder / "params.h5", initial_weights(model_json, 1), header.to_json())
        random_numbers = np.random.default_rng(1)
        x = random_numbers.integers(256, size=(SAMPLES, 32, 32, 3), dtype=np.uint8)
        np.savez(folder / "shard.npz", x=x, y=random_numbers.integers(10, size=SAMPLES))
        return [self._stage(folder / name) for name in ("model.json", "params.h5", "shard.npz")]

    def _create(self, workunit: Workunit) -> None:
        path = self._folder / f"{workunit.name}.json"
        path.write_text(workunit.to_json())
        arguments = ["--appname", "vcdl", "--wu_name", workunit.name, "--wu_template", "templates/vcdl_in.xml"]
        arguments += ["--result_template", "templates/vcdl_out.xml", "--rsc_fpops_est", "1e12"]
        arguments += ["--rsc_fpops_bound", "1e18", "--delay_bound", "7200", self._stage(path), *self._inputs]
        subprocess.run(["bin/create_work", *arguments], cwd=self._project.path, check=True)

    def _stage(self, path: Path) -> str:
        name = f"vcdl_{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}{path.suffix}"
        self._project.stage(path, name)
        staged = self._project.config.download_path(name)
        staged.with_name(f"{name}.gz").write_bytes(gzip.compress(staged.read_bytes(), 1))
        return name


if __name__ == "__main__":
    main()
