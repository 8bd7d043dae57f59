"""JSON Schemas of the documents that are read, made from what reads them, so that a schema accepts what its reader accepts.

The project, sources and fixtures are read by project/documents.py, manifests and records by identity/read.py, journal entries by
lifecycle/journal.py. FIELDS says in words what a field is where its name does not.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.json import schema_components
from pydantic import BaseModel

from streamform.identity.read import ManifestDocument, RecordDocument
from streamform.lifecycle.journal import ATTEMPT_VERSION, Attempt
from streamform.project.documents import FixtureDocument, ProjectDocument, SourcesDocument
from streamform.render.schema_part import TEXT, Maybe, Part, Schema, assembled, list_of, nullable, one_of, shape, version_field
from streamform.runtime.records import OPERATIONS

FIELDS: dict[str, dict[str, str]] = {
    "Project": {
        "name": "The application's name; jobs and locks carry it.",
        "emit_unchanged": "Whether fixtures list updates that change nothing. Backends never emit them.",
        "groups": "Names that approvers may use for several people.",
        "models": "The declared contract of each model in models/.",
        "targets": "Where the project is deployed, by name.",
    },
    "Model": {
        "materialized": "append: every output row is a new fact; upsert: one row a key, which changes.",
        "key": "The columns that an upsert row is identified by.",
        "retention": "How long a key's state lives after its last event.",
        "on_expiry": "What happens to the row of a key that expires.",
        "renamed_from": "The model's name on the running side, so that its state is found.",
        "nodes": "For a node such as aggregate.0, the running node that it was.",
    },
    "Window": {
        "size": "How long a window is; for a cumulating one, the longest.",
        "slide": "How far apart the starts of hopping windows are.",
        "step": "How far apart the ends of cumulating windows are.",
        "gap": "How long a session window stays open without an event.",
    },
    "Endpoint": {
        "topic": "The topic, for kafka.",
        "path": "The file or folder, for file; the database file, for sqlite. Relative to the project.",
        "table": "The table, for sqlite and iceberg.",
    },
    "Target": {
        "store": "Where record, journal, approvals and lock are kept.",
        "approvals": "What must be approved before it is applied. Absent: the command line asks nothing.",
        "sources": "Where sources are on this target, by name.",
        "sinks": "Where sinks are on this target, by model.",
    },
    "Flink": {
        "gateway": "The address of the SQL Gateway.",
        "rest": "The address of the JobManager; absent, the gateway is asked for it.",
        "savepoint_dir": "Where savepoints are written; absent, the cluster's setting.",
        "checkpoint_interval": "How often a job takes a checkpoint.",
        "plans": "The folder, seen by the cluster, where compiled plans are kept.",
    },
    "Kafka": {"startup": "From which end a topic is read that was not read before."},
    "Embedded": {"state": "The database file that holds state and positions."},
    "Approvals": {
        "above": "The highest verdict that needs no approval.",
        "expires": "How long an approval counts, from its stored time.",
        "approvers": "Users and groups whose approvals count; empty: everybody's.",
        "min_approvals": "How many different people must approve.",
        "allow_self": "Whether who asked for the apply may approve it.",
        "trust_os_user": "Whether names that the operating system gives count as known.",
    },
    "Source": {
        "schema": "The columns and their types.",
        "key": "The columns that events are partitioned by.",
        "event_time": "The timestamp column that time is taken from.",
        "watermark": "How far out of order events may arrive.",
        "late_events": "What happens to an event behind the watermark.",
        "idle_timeout": "After how long a silent partition no longer holds time back.",
        "contracts": "Rules that events must meet, in the order in which they are asked.",
    },
    "Contract": {
        "not_null": "Columns that must have a value.",
        "check": "A condition that must be true; NULL breaks it.",
    },
    "Fixture": {
        "model": "The model that is tested.",
        "given": "Events, files of events and watermarks, in the order in which they arrive.",
        "expect": "The changelog records that the model must emit.",
        "match": "Whether records are compared in order, in any order, or only in the columns that are written.",
        "expect_final": "The rows at the end, in any order.",
        "expect_error": "Words of the error that must end the run.",
        "upgrade": "A change of the project after `given`.",
        "late": "The events that must be dropped as late.",
        "quarantined": "The events that must be quarantined, each with the contract that it breaks.",
    },
    "Upgrade": {
        "project": "The revision before: a folder, or git:REF.",
        "verdict": "The verdict that the plan must give.",
        "given": "What arrives after the change.",
    },
    "JournalEntry": {
        "sequence": "The number of the entry in its unit, from 1 without gaps.",
        "previous": "The digest of the entry before.",
        "artifact": "The digest of what the attempt deploys.",
        "carry": "For each desired node, the running node whose state it goes on with.",
        "replaces": "Other running units that end with the attempt.",
        "approvals": "The decisions that the attempt consumed.",
        "running": "What runs once the entry is closed; before that, what ran before.",
    },
}
"""By the name of a part: what a field is, where its name does not say it."""


_ORDER = ("description", "type", "properties", "required", "additionalProperties", "items", "default")
"""Keywords in the order in which they are easiest to read; others come first."""


def derived(kind: type[BaseModel | Struct], name: str, about: str) -> Schema:
    """The schema that a reader's type has, with names and words of this product."""
    schema, parts = _own_schema(kind)
    found = _described({**_plain(schema), "description": about}, name)
    if not parts:
        return found
    return found | {"$defs": {_named(part): _described(_plain(value), _named(part)) for part, value in sorted(parts.items())}}


def _own_schema(kind: type[BaseModel | Struct]) -> tuple[Schema, dict[str, Schema]]:
    """The schema of a type as its library gives it, and those of its parts."""
    if issubclass(kind, BaseModel):
        schema: Schema = kind.model_json_schema(by_alias=True)
        return schema, schema.pop("$defs", {})
    _, parts = schema_components([kind])
    return parts.pop(kind.__name__), parts


def _named(part: str) -> str:
    return part.removeprefix("_").removesuffix("Document")


def _described(schema: Schema, name: str) -> Schema:
    words = FIELDS.get("Endpoint" if name == "Sink" else name, {})
    fields = {field: value | {"description": words[field]} if field in words else value for field, value in schema["properties"].items()}
    about = {"description": schema["description"]} if "description" in schema else {}
    return {**about, "type": "object", "properties": fields, "required": schema.get("required", []), "additionalProperties": False}


def _plain(value: Any) -> Any:
    """Without titles and without defaults that say nothing; a simple type that may be null as a pair of types."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for name, item in value.items():
        if name == "properties":
            result[name] = {field: _plain(of) for field, of in item.items()}
        elif name == "$ref":
            result[name] = f"#/$defs/{_named(item.rpartition('/')[2])}"
        elif name != "title" and not (name == "default" and item in (None, [], {})):
            result[name] = _plain(item)
    options = result.get("anyOf", [])
    if len(options) == 2 and options[1] == {"type": "null"} and "type" in options[0] and "enum" not in options[0]:
        del result["anyOf"]
        result |= nullable(options[0])
    return dict(sorted(result.items(), key=lambda item: _ORDER.index(item[0]) if item[0] in _ORDER else 0))


# what people write


def project_schema() -> Schema:
    """streamform.yml."""
    schema = derived(ProjectDocument, "Project", "The project: its models' contracts and its targets.")
    return _with_version(schema, "version", 1)


def sources_schema() -> Schema:
    """sources.yml."""
    return derived(SourcesDocument, "Sources", "What the models read.")


SCALAR = Part("Scalar", {"type": ["null", "boolean", "number", "string"]})
ROW = Part("Row", {"description": "Values by column.", "type": "object", "additionalProperties": SCALAR})
GIVEN = Part(
    "Given",
    {
        "description": "An event's columns as they are, an event, a file of events, or a watermark.",
        "anyOf": [
            {"type": "object", "additionalProperties": SCALAR, "not": {"required": ["event"]}},
            shape("An event.", {"event": ROW, "source": Maybe(TEXT)}),
            shape("The events of a file.", {"rows": TEXT, "source": Maybe(TEXT)}),
            shape(
                "A watermark: an instant, or milliseconds since the epoch.",
                {"watermark": {"type": ["string", "integer"]}, "source": Maybe(TEXT)},
            ),
        ],
    },
)
EXPECTED = Part(
    "Expected",
    {
        "description": "A changelog record: its op and its columns, or the columns in `row`; `before` is the row before an update.",
        "type": "object",
        "properties": {
            "op": one_of(OPERATIONS),
            "row": {"anyOf": [ROW, SCALAR]},
            "before": {"anyOf": [ROW, SCALAR]},
        },
        "required": ["op"],
        "additionalProperties": SCALAR,
    },
)
QUARANTINED = Part(
    "Quarantined",
    {
        "description": "An event that breaks a contract: its columns, and the contract's name.",
        "type": "object",
        "properties": {"_contract": TEXT},
        "required": ["_contract"],
        "additionalProperties": SCALAR,
    },
)
ITEMS = {"given": GIVEN, "expect": EXPECTED, "expect_final": ROW, "late": ROW, "quarantined": QUARANTINED}
"""What the lists of a fixture hold; its reader takes their items apart itself."""


def fixture_schema() -> Schema:
    """A file below tests/."""
    schema = derived(FixtureDocument, "Fixture", "A test of one model: events that are given, and what must come of them.")
    parts = assembled({"properties": {name: list_of(part) for name, part in ITEMS.items()}})
    for owner in (schema, *schema["$defs"].values()):
        for name in owner["properties"].keys() & ITEMS.keys():
            owner["properties"][name]["items"] = parts["properties"][name]["items"]
    return schema | {"$defs": dict(sorted({**schema["$defs"], **parts["$defs"]}.items()))}


# what identity and life cycle write and read


def plan_manifest_schema() -> Schema:
    """What `inspect-plan --json` prints: the whole plan, or the part of one model."""
    about = "The operators of every model with their digests, or those of one model."
    whole = derived(ManifestDocument, "Manifest", "The plan of an application.")
    parts = whole.pop("$defs")
    whole = _with_version(whole, "manifest_version", 1)
    fields = {name: field for name, field in whole["properties"].items() if name != "application_digest"}
    one = shape("The part of one model, which has no digest of its own.", {**fields, "model": TEXT})
    return {
        "description": about,
        "oneOf": [_ref("Manifest"), _ref("ModelPart")],
        "$defs": dict(sorted({**parts, "Manifest": whole, "ModelPart": one}.items())),
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def applied_record_schema() -> Schema:
    """What apply writes below applied/ in the store."""
    schema = derived(RecordDocument, "Record", "What runs on a target.")
    manifest = _with_version(schema["$defs"]["Manifest"], "manifest_version", 1)
    return _with_version(schema, "record_version", 1) | {"$defs": schema["$defs"] | {"Manifest": manifest}}


def journal_entry_schema() -> Schema:
    """What apply writes below journal/ in the store."""
    about = "One attempt to change a unit, as this product writes it: its stages and what they returned, and what runs afterwards."
    schema = derived(Attempt, "JournalEntry", about)
    fields = {"attempt_version": version_field(ATTEMPT_VERSION), **schema["properties"]}
    return schema | {"properties": fields, "required": ["attempt_version", *schema["required"]]}


def _with_version(schema: Schema, field: str, number: int) -> Schema:
    return schema | {"properties": {**schema["properties"], field: version_field(number)}}
