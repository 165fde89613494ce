"""Install a whole server on an empty machine, back it up, restore, upgrade and remove it.

Runs as root.
"""
