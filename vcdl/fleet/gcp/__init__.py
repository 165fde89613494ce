"""Fleets on Google's Compute Engine, through its own client library. docs/fleet-gcp.md says what a user needs there."""
