"""Servers that only the tests start; those that the demo starts too are in `consumer.embedded`."""
