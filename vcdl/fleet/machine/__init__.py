"""The programs on an instance (set-up script and agent), and the user data that bring them there."""
