"""Fleets of preemptible instances that give a BOINC project its clients. Nothing in the training core knows of this package."""
