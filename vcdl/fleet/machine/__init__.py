"""The programs on an instance (set-up script and agent), and the user data that install them."""
