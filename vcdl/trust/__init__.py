"""The defence against strangers: what an upload of theirs is worth, and how lies are found."""
