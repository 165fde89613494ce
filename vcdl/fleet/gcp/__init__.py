"""Fleets on Google's Compute Engine, through its own client library, which is imported only when a fleet is there."""

from vcdl.fleet.gcp.provider import GcpProvider

__all__ = ["GcpProvider"]
