"""What runs on an instance: its user data, the set-up script in it, and the agent."""

from vcdl.fleet.machine.cloud_init import MOST_BYTES, compressed, user_data

__all__ = ["MOST_BYTES", "compressed", "user_data"]
