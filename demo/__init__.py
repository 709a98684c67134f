"""The whole path on this machine, without any service: `python -m demo`."""
