"""Write files as a whole, lock them, fetch remote ones, find shipped ones, and start child processes."""
