"""Flink SQL from typed plans: pure text, nothing here reaches a cluster."""
