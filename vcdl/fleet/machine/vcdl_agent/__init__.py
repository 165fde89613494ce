"""VCDL's agent on an instance of a fleet: it has the machine's results uploaded before the machine goes.

    python3 -m vcdl_agent --config /etc/vcdl/agent.json [--dry-run]

The system's own Python (3.9 or newer) runs it as root: standard library and relative imports only.

- Notice (the cloud takes the machine) or shutdown: no new work, running subtasks finish now, all results are uploaded
  and reported. The agent does not end the machine: AWS charges nothing for an hour that it interrupts itself.
- Drain (the fleet no longer wants the machine): no new work, running subtasks keep their time; then power off.
- Idle (no reachable project, or no attached BOINC client, for too long): power off, to stop the cost.

The agent stores one number on disk. Each step compares the wanted state with the BOINC client's, so it may be killed at
any point.
"""
