"""Digests of fingerprint texts.

A digest is the SHA-256 of a text that is shown to users, so that anyone can recompute it: the state digest of the
`aggregate ..` line, the schema digest of `[name: type, ..]`, the application digest of the compact manifest.
"""

from __future__ import annotations

import hashlib
import json

from streamform.plan.nodes import KeyedState
from streamform.values.rows import Schema, render_schema

SHOWN_DIGITS = 12


def digest(text: str) -> str:
    """The SHA-256 of a text in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def short(value: str) -> str:
    """The digits of a digest that are shown."""
    return value[:SHOWN_DIGITS]


def compact_json(value: object) -> str:
    """JSON without spaces, keys in the order given, non-ASCII characters as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def canonical_json(value: object) -> str:
    """JSON without spaces and with sorted keys: equal values give equal texts."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def schema_digest(schema: Schema) -> str:
    """The digest of a schema's text."""
    return digest(render_schema(schema))


def state_fingerprint(state: KeyedState) -> str:
    """The line that says what a keyed node keeps."""
    accumulators = f" accumulators={render_schema(state.accumulators)}" if state.accumulators else ""
    text = f"aggregate key=[{', '.join(state.keys)}]{accumulators} retention={state.retention}"
    return text if state.window is None else f"{text} window={state.window}"


def state_digest(state: KeyedState) -> str:
    """The digest of the state fingerprint."""
    return digest(state_fingerprint(state))
