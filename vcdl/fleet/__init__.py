"""Fleets of preemptible instances that are clients of a BOINC project; the training does not depend on them."""
