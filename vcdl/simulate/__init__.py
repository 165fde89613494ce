"""Runs in virtual time: the training is real, the clients' clocks are not, so that a large fleet can be studied on two cores."""
