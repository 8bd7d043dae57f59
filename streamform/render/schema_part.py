"""Parts of JSON Schemas: small functions that read like the documents they describe.

Shape: a schema is plain JSON in draft 2020-12. A Part is a schema with a name; `assembled` puts each that is used below $defs once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

Schema = dict[str, Any]


class Part(Struct, frozen=True, dict=True):
    """A named schema, referred to wherever it occurs."""

    name: str
    schema: Schema


class Maybe(Struct, frozen=True, dict=True):
    """A field that may be left out, or null."""

    of: Any


TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TEXTS: Schema = {"type": "array", "items": TEXT}
ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}
DIGEST: Schema = {"type": "string", "description": "A SHA-256 in hexadecimal."}
INSTANT: Schema = {"type": "string", "description": "RFC 3339, UTC."}


def version_field(number: int) -> Schema:
    """The field that says of which version a document is."""
    return {"type": "integer", "const": number}


def one_of(words: Iterable[str]) -> Schema:
    """One of some words."""
    return {"type": "string", "enum": list(words)}


def list_of(items: Any) -> Schema:
    """A list of one kind of item."""
    return {"type": "array", "items": items}


def nullable(schema: Any) -> Schema:
    """The schema, or null: what a field is that may be left out."""
    if isinstance(schema, dict) and isinstance(schema.get("type"), str) and "enum" not in schema and "const" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def shape(about: str, fields: Mapping[str, Any], *, is_open: bool = False) -> Schema:
    """An object with these fields and no others, unless it is open."""
    return {
        "description": about,
        "type": "object",
        "properties": {name: nullable(field.of) if isinstance(field, Maybe) else field for name, field in fields.items()},
        "required": [name for name, field in fields.items() if not isinstance(field, Maybe)],
        "additionalProperties": is_open,
    }


def assembled(schema: Schema) -> Schema:
    """The schema with references in place of its parts, and the parts below $defs, in alphabetical order."""
    found: dict[str, Any] = {}
    plain: Schema = _referring(schema, found)
    return plain if not found else {**plain, "$defs": dict(sorted(found.items()))}


def _referring(value: Any, found: dict[str, Any]) -> Any:
    if isinstance(value, Part):
        if value.name not in found:
            found[value.name] = None
            found[value.name] = _referring(value.schema, found)
        return {"$ref": f"#/$defs/{value.name}"}
    if isinstance(value, dict):
        return {name: _referring(item, found) for name, item in value.items()}
    return [_referring(item, found) for item in value] if isinstance(value, list) else value
