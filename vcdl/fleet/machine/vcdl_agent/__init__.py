"""VCDL's agent on an instance of a fleet: it sees to it that what was trained is uploaded before the machine goes.

    python3 -m vcdl_agent --config /etc/vcdl/agent.json [--dry-run]

The standard library only, and relative imports: cloud-init writes it, and the system's own Python (3.9 or newer) runs it, as root.

The cloud takes the machine (notice), or it shuts down for another reason: no new work, running subtasks finish now, all is uploaded
and reported. The agent does not end the machine then: an hour that AWS interrupts is free, and one that we end is not.
The fleet no longer wants the machine (drain, see vcdl/fleet/drain.py): no new work, running subtasks have their time; power off.
The machine has been of no use for too long, without its project or a BOINC client: power off, or it would cost for ever.

It keeps nothing but a number in a file: each pass compares what is wanted with what the BOINC client says. It may be killed anywhere.
"""
