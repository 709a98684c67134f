"""Dead letters, shown and sent back: what one holds, which are open, how one becomes a record again."""
