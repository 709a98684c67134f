"""Tests: unit, contract, integration (a real broker), e2e (real Kafka and Hindsight)."""
