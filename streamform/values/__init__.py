"""Logical types, rows and instants: what a value is, before any SQL or any file is involved."""
