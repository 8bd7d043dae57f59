"""Dagster assets, approvals and sensors for streamform."""
