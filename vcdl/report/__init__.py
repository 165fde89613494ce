"""What is shown of a run: figures folded from its journal, and the ways to put them before the user."""
