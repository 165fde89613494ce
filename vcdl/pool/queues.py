"""Control batch queues by their own commands, and write scripts that start a pilot in a queue, for users to edit.

A run's pilots have one name in the queue, which is derived from the run's folder. So `vcdl pool up` recognises them
even after it was killed.
"""

import hashlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import GridError, GridUnavailable, RunFolderError

_TIMEOUT_S = 60.0
"""Seconds to wait for a command of a queue, since a busy one answers slowly."""
_NOTICE_S = 120
"""Seconds between the signal by which a queue ends a pilot and its kill, enough to upload what is trained."""


@dataclass(frozen=True)
class BatchQueue:
    """A kind of batch queue, with the commands that control one run's pilots in it."""

    name: str
    submit: Sequence[str]
    """The command that submits one pilot. In all commands `{name}` stands for the pilots' name and `{script}` for the
    script."""
    show: Sequence[str]
    """The command that prints one word for each of the run's pilots in the queue."""
    cancel: Sequence[str]
    """The command that cancels all of the run's pilots."""

    def count(self, name: str) -> int:
        """Return the number of a run's pilots that wait in the queue or run.

        Args:
            name: The pilots' name in the queue (`queue_name`).

        Raises:
            GridError: The queue's command failed.
        """
        return len(self._call(self.show, name).split())

    def add(self, name: str, script: Path, missing: int) -> None:
        """Submit pilots, one after the other.

        Args:
            name: The pilots' name in the queue (`queue_name`).
            script: The script that starts a pilot.
            missing: Number of pilots to submit.

        Raises:
            GridError: The queue's command failed; the pilots before it were submitted.
        """
        for _ in range(missing):
            self._call(self.submit, name, script)

    def remove(self, name: str) -> None:
        """Cancel all pilots of a run, waiting and running ones; `name` is their name in the queue (`queue_name`).

        Raises:
            GridError: The queue's command failed.
        """
        self._call(self.cancel, name)

    def _call(self, command: Sequence[str], name: str, script: Path | None = None) -> str:
        arguments = [part.format(name=name, script=script) for part in command]
        try:
            done = subprocess.run(
                arguments, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError as error:
            raise GridError(
                f"there is no {arguments[0]} here: run this on a machine that has the queue's commands"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise GridUnavailable(f"{arguments[0]} has not answered for {_TIMEOUT_S:g} s") from error
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1][:300]
            raise GridUnavailable(f"`{shlex.join(arguments)}` failed: {said}")
        return done.stdout


SLURM = BatchQueue(
    "slurm",
    submit=("sbatch", "--parsable", "--job-name={name}", "{script}"),
    show=("squeue", "--noheader", "--me", "--name={name}", "--format=%i"),
    cancel=("scancel", "--me", "--name={name}"),
)
HTCONDOR = BatchQueue(
    "htcondor",
    submit=("condor_submit", "-batch-name", "{name}", "{script}"),
    show=("condor_q", "-constraint", 'JobBatchName == "{name}"', "-autoformat", "ClusterId"),
    cancel=("condor_rm", "-constraint", 'JobBatchName == "{name}"'),
)
QUEUES = {queue.name: queue for queue in (SLURM, HTCONDOR)}


def queue_name(run: Path) -> str:
    """Return the name of a run's pilots in a queue: `vcdl-RUN-DIGEST`, which differs for each folder."""
    # Two runs of the same name in two folders must not count, or cancel, each other's pilots.
    digest = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9]+", "-", run.name.lower())[:40].strip("-")
    return f"vcdl-{plain}-{digest}"


def script(kind: str, run: Path) -> str:
    """Return the text of a script that starts a pilot of a run in a batch queue, for users to edit.

    Args:
        kind: One of SCRIPTS.
        run: The run's folder.

    Raises:
        RunFolderError: The folder's path contains a character that cannot be printed, such as a line break.
    """
    run = run.resolve()
    if not str(run).isprintable():
        raise RunFolderError(f"{str(run)!r} contains a character that is not allowed in a script: rename the folder")
    # HTCondor expands `$(…)` and ends an argument at a quote: a folder's name must do neither.
    in_condor = str(run).replace("'", "''").replace('"', '""').replace("$", "$(DOLLAR)")
    return _SCRIPTS[kind].format(
        name=queue_name(run),
        run=run,
        condor_run=in_condor,
        json_run=json.dumps(f"/runs/{run.name}"),
        quoted_run=shlex.quote(str(run)),
        vcdl=shlex.quote(str(Path(sys.executable).with_name("vcdl"))),
        vcdl_plain=Path(sys.executable).with_name("vcdl"),
        notice_s=_NOTICE_S,
    )


_SLURM = """\
#!/bin/bash
# A pilot of {run}. To be edited: partition, time, cores, scratch. `sbatch --array=1-20 FILE` submits twenty.
#SBATCH --job-name={name}
#SBATCH --partition=preemptible
#SBATCH --time=04:00:00
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=vcdl-pilot-%j.log
# The notice: the pilot hands in what it has trained, and ends. Slurm gives a step (srun) its notice first.
#SBATCH --signal=TERM@{notice_s}

srun --ntasks=1 {vcdl} worker {quoted_run} --scratch "${{SLURM_TMPDIR:-${{TMPDIR:-/tmp}}}}/vcdl-$SLURM_JOB_ID"
# It was told to go, and the job is not over; 143: before it could listen.
case $? in 130|143) scontrol requeue "$SLURM_JOB_ID" ;; esac
"""
_PBS = """\
#!/bin/bash
# A pilot of {run}. To be edited: queue, time, cores. `qsub -J 1-20 FILE` submits twenty.
#PBS -N vcdl-pilot
#PBS -q preemptible
#PBS -l select=1:ncpus=4:mem=4gb
#PBS -l walltime=04:00:00
#PBS -r y
#PBS -j oe

# PBS says nothing before the time is over: the pilot leaves by itself before.
exec {vcdl} worker {quoted_run} --for 235min --scratch "${{TMPDIR:-/tmp}}/vcdl-$PBS_JOBID"
"""
_HTCONDOR = """\
# A pilot of {run}. To be edited: cores, memory. `condor_submit FILE -queue 20` submits twenty.
universe = vanilla
batch_name = {name}
executable = {vcdl_plain}
arguments = "worker '{condor_run}'"
request_cpus = 4
request_memory = 4GB
should_transfer_files = NO
kill_sig = SIGTERM
job_max_vacate_time = {notice_s}
max_retries = 1000
log = vcdl-pilot.log
output = vcdl-pilot-$(ClusterId).$(ProcId).out
error = vcdl-pilot-$(ClusterId).$(ProcId).err
queue
"""
_KUBERNETES = """\
# Twenty pilots of a run on spot nodes. To be edited: image, claim, resources, the toleration of your cloud.
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: 20
  parallelism: 20
  backoffLimit: 1000
  template:
    spec:
      restartPolicy: OnFailure
      terminationGracePeriodSeconds: {notice_s}
      tolerations:
        - {{key: cloud.google.com/gke-spot, operator: Equal, value: "true", effect: NoSchedule}}
      containers:
        - name: pilot
          image: your-registry/vcdl:latest
          command: [vcdl, worker, {json_run}, --scratch, /scratch]
          resources:
            requests: {{cpu: "4", memory: 4Gi}}
          volumeMounts:
            - {{name: runs, mountPath: /runs}}
            - {{name: scratch, mountPath: /scratch}}
      volumes:
        - name: runs
          persistentVolumeClaim: {{claimName: vcdl-runs}}
        - name: scratch
          emptyDir: {{}}
"""
_SCRIPTS = {"slurm": _SLURM, "htcondor": _HTCONDOR, "pbs": _PBS, "kubernetes": _KUBERNETES}
SCRIPTS = tuple(_SCRIPTS)
"""The kinds of queue for which there is a script."""
