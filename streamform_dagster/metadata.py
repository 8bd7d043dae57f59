"""Metadata of events and definitions: the keys that streamform uses, and values that fit an event."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import dagster as dg

from streamform.catalog import Columns

DESCRIPTION_LIMIT = 200
MARKDOWN_LIMIT = 50_000
RECORD_LIMIT = 16_384
"""Longer records are kept compressed."""
ENVELOPE_VERSION = 1
ENVELOPE = "gzip+base64"
CUT = "\n\n(cut; `streamform plan` shows all)"

RawMetadata = dict[str, Any]


def key(name: str) -> str:
    """A metadata or tag key of ours."""
    return f"streamform/{name}"


def cut_text(text: str, limit: int = DESCRIPTION_LIMIT) -> str:
    """A line that is no longer than this."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def markdown(text: str) -> dg.MarkdownMetadataValue:
    """Markdown that fits an event, cut at a line with a note when it would not."""
    content = text.encode()
    if len(content) > MARKDOWN_LIMIT:
        kept = content[: MARKDOWN_LIMIT - len(CUT.encode())].decode("utf-8", "ignore").rsplit("\n", 1)[0]
        text = kept + CUT
    return dg.MetadataValue.md(text)


def fenced(text: str, language: str = "") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def column_schema(columns: Columns) -> dg.TableSchema:
    """Columns as Dagster shows them."""
    return dg.TableSchema([dg.TableColumn(name, type_) for name, type_ in columns])


def record_value(text: str) -> dg.JsonMetadataValue:
    """The applied record, as it is or in an envelope that `record_document` opens."""
    if len(text) <= RECORD_LIMIT:
        return dg.MetadataValue.json(json.loads(text))
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    envelope = {"v": ENVELOPE_VERSION, "encoding": ENVELOPE, "sha256": digest(text), "bytes": len(text.encode()), "data": packed}
    return dg.MetadataValue.json(envelope)


def record_document(value: Mapping[str, Any]) -> dict[str, Any]:
    """The record that metadata holds; Dagster sorts its keys, so the order is lost.

    Raises: ValueError for an envelope of another version, or one whose content was changed.
    """
    if "encoding" not in value:
        return dict(value)
    if value.get("v") != ENVELOPE_VERSION or value["encoding"] != ENVELOPE:
        raise ValueError(f"an envelope of version {value.get('v')!r}, {value['encoding']!r}")
    text = gzip.decompress(base64.b64decode(value["data"])).decode()
    if digest(text) != value["sha256"]:
        raise ValueError("the record does not have the digest that its envelope names")
    document: dict[str, Any] = json.loads(text)
    return document


def digest(text: str) -> str:
    """The SHA-256 that the journal names a record by."""
    return hashlib.sha256(text.encode()).hexdigest()


def verdict_tag(verdict: str) -> str:
    """A verdict as a tag value, which may hold no spaces."""
    return verdict.lower().replace(" ", "-")
