"""Real servers on this machine, for the demo and the tests: each on a free port of 127.0.0.1, each ended by its user.

`supervise` starts, watches and ends a process; beside it, one file for each server.
"""
