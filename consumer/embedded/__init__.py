"""Servers for the demo and the tests, each on a free port of 127.0.0.1 and stopped by its user.

`supervise` starts, watches and stops a process; each server has a module of its own.
"""
