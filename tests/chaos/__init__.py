"""Chaos: real Apache Kafka, real workers, and everything around them failing at random. `python -m tests.chaos`."""
