"""Run fleets of preemptible cloud instances as clients of a BOINC project.

The training does not depend on them: it continues with whatever clients there are.
"""
