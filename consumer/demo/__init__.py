"""The whole path on this machine, without any service: `paperclip-memory demo`."""
