"""Fleets on Google's Compute Engine, through Google's client library.

docs/fleet-gcp.md lists what a user has to set up.
"""
