"""What paperclip-memory does in a second, and for how much CPU, beside its peers on the same records: `make bench`."""
