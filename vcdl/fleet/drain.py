"""Draining: instances that are to go finish what they have, take nothing new, and are then ended. A contract of three parts.

1. Provider.mark_draining(ids, since_s) writes the mark `vcdl-drain` = Unix time in whole seconds where each instance sees it itself:
   on AWS a tag, on GCP an item of the instance's metadata.
2. The agent (vcdl/fleet/machine/vcdl_agent) polls its own metadata for the mark every 5 s, together with the notice of preemption:
   AWS: IMDSv2 `/latest/meta-data/tags/instance/vcdl-drain` (the launch template sets InstanceMetadataTags=enabled; 404: no mark);
   GCP: `/computeMetadata/v1/instance/attributes/vcdl-drain` (404: no mark).
   Once it is there the agent tells the BOINC client to fetch no more work from the project, lets running tasks end, has the client
   upload and report them, and when no task of the project is left powers the machine off; `--dry-run` machines only say so.
   The mark is for good: an agent never goes back to work.
3. The launch makes power-off mean termination (AWS: InstanceInitiatedShutdownBehavior=terminate; on GCP, where it would mean a
   stopped VM, the provider finds it as State.STOPPED, and the reconciler terminates those in its next pass).
   The reconciler terminates a draining instance when its mark is older than `drain_s`, whatever its agent does.

Nothing is kept outside the cloud: whoever reconciles next sees the marks and goes on. Marked instances do not count as capacity.
"""

from collections.abc import Iterable

from vcdl.fleet.instance import Instance


def overdue(instances: Iterable[Instance], now_s: float, drain_s: float) -> tuple[str, ...]:
    """Ids of live instances whose drain mark is at least so old: they have had their time."""
    return tuple(
        instance.id
        for instance in instances
        if instance.is_live and instance.draining_s is not None and now_s - instance.draining_s >= drain_s
    )
