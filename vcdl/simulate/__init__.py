"""Runs in virtual time: real training under simulated clocks, to study many clients on two cores."""
