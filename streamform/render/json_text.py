"""JSON documents as text: indented as far as people read, and below that on one line, which is fast for long lists."""

from __future__ import annotations

import json
from typing import Any

LEVELS = 4
"""How deep a document is indented. Rows of a test report and columns of a plan are below that."""


def json_text(document: Any) -> str:
    """The document as text, with a line break at the end."""
    return _text(document, 0) + "\n"


def _text(value: Any, depth: int) -> str:
    if not value or depth == LEVELS or not isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict):
        parts = [f"{json.dumps(str(name), ensure_ascii=False)}: {_text(item, depth + 1)}" for name, item in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + "\n" + outer + "}"
    return "[\n" + ",\n".join(inner + _text(item, depth + 1) for item in value) + "\n" + outer + "]"
