"""Chaos test: real Apache Kafka and real workers, with random faults around them. `python -m tests.chaos`."""
