"""The programs on an instance (set-up script and agent), and the cloud-init file that installs them."""
