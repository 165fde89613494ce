"""Update rules: how an upload changes the shared weights. Pure NumPy, in place, one rule per file."""
