"""The programs on an instance (set-up script and agent), and the user data that bring them there."""

from vcdl.fleet.machine.cloud_init import MAX_BYTES, compressed, user_data

__all__ = ["MAX_BYTES", "compressed", "user_data"]
