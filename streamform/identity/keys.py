"""What identifies what: a row for each kind of identity, and the types of those that something compares.

Structural keys are fingerprints of what is computed, so they may be compared across two plans. An occurrence is a place
whose text may change while the place persists. The rest locates something within one plan and is never compared with
another plan's.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple, NewType

DefinitionKey = NewType("DefinitionKey", str)
"""A complete application. Equal when everything that is shown outside is computed alike."""
StateKey = NewType("StateKey", str)
"""What one keyed stream holds. Equal when it is computed alike from the same sources."""
InputKey = NewType("InputKey", str)
"""The rows that a keyed stream folds, with its key. Equal when the same rows reach the same keys."""
OutputKey = NewType("OutputKey", str)
"""What a model shows its readers. Equal when the same rows appear under the same names in the same place."""
OccurrenceKey = NewType("OccurrenceKey", str)
"""A place: `<model>::<kind>::<ordinal>`. Equal when the text is; what stands there may have changed."""

KEY_BYTES = 16
"""A structural key has 128 bits."""


def fingerprint(domain: str, descriptor: Any) -> str:
    """The structural key of a descriptor as 32 hex digits. A descriptor of another domain never has the same one by construction.

    Descriptors are nested lists of text, numbers, booleans and None.
    """
    text = json.dumps([domain, descriptor], separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=KEY_BYTES, person=b"streamform").hexdigest()


class Identity(NamedTuple):
    """One kind of identity."""

    name: str
    scope: str
    equal_when: str
    across_plans: bool
    """Whether two plans' values may be compared."""
    here: str
    """What it is in this product."""


IDENTITIES: tuple[Identity, ...] = (
    Identity(
        "DefinitionKey", "a complete application", "everything shown outside is computed alike", True, "`structure_of(plan).definition`"
    ),
    Identity("StateKey", "what one keyed stream holds", "it is computed alike from the same sources", True, "`Stream.state_key`"),
    Identity("InputKey", "the rows that a keyed stream folds", "the same rows reach the same keys", True, "`Stream.input_key`"),
    Identity("OutputKey", "what a model shows", "the same rows appear under the same names in the same place", True, "`Output.key`"),
    Identity("OccurrenceKey", "a place in a model", "the texts are equal", True, "the node id, `<model>::<kind>::<ordinal>`"),
    Identity("StreamIndex", "a keyed stream within one plan", "same plan, same index", False, "the place in `Plan.nodes`"),
    Identity("ColumnSlot", "a column of a row within one plan", "same plan, same node, same index", False, "the place in `Node.schema`"),
    Identity("NodeIndex", "an operator within one plan", "same plan, same index", False, "the place in `Plan.nodes`"),
    Identity(
        "Route", "where a unit physically runs", "never a state identity", False, "a Flink job id, a generation of the state database"
    ),
    Identity("PlanRevision", "accepted plans of a unit", "a counter, not an identity", False, "`plan_revision` of `history --json`"),
    Identity(
        "InterfaceRevision",
        "accepted sources and sinks of a unit",
        "a counter, not an identity",
        False,
        "`interface_revision` of `history --json`",
    ),
)
"""Every kind of identity, the structural ones first."""
