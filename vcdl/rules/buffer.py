"""Rules that wait for K updates: which of the K one is. Each moves W when the last of them is there."""

from vcdl.rules.base import Update


def place(update: Update, buffer: int) -> int:
    """0 for the first of each K = `buffer` updates, K − 1 for the last: by its number in the job."""
    return (update.number - 1) % buffer


def is_last(update: Update, buffer: int) -> bool:
    """Whether the buffer is full with it."""
    return place(update, buffer) == buffer - 1
