"""Dead letters: reading them, listing the open ones, and sending them back (redrive)."""
