"""Lines of a file to rows of a source, and the words for a line that is no event of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from streamform.errors import DataError
from streamform.project.model import Source
from streamform.values.rows import Row, Value, file_parser

SHOWN = 120
"""Characters of a broken line that a message shows."""


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


_write = json.JSONEncoder(ensure_ascii=False, default=str).encode
_decode = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse).decode


class EventParser:
    """Reads one line after another as events of a source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.columns: list[tuple[str, str, Callable[[object], Value]]] = [(c.name, str(c.type), file_parser(c.type)) for c in source.schema]

    def parse(self, line: bytes, place: str) -> Row | None:
        """The event of a line, None for a blank one. A column that is missing is NULL, other keys are ignored.

        Raises: DataError naming the place (`FILE, line N`), the column and what was expected.
        """
        if not line.strip():
            return None
        event = self.decode(line, place)
        values: list[Value] = []
        for name, type_, parse in self.columns:
            raw = event.get(name)
            try:
                values.append(parse(raw))
            except (ValueError, ArithmeticError):
                raise DataError(
                    f"{place}: {name} is {_shown(raw)}, which is no {type_}",
                    f"correct the event, or the schema of source `{self.source.name}`",
                ) from None
        return tuple(values)

    def parse_cells(self, cells: Mapping[str, str | None], place: str) -> Row:
        """The event of a CSV record, by the names of the header; an empty cell is NULL, further ones are ignored.

        Raises: DataError as parse().
        """
        values: list[Value] = []
        for name, type_, parse in self.columns:
            text = cells.get(name)
            try:
                values.append(_cell(text, type_, parse))
            except (ValueError, ArithmeticError):
                raise DataError(
                    f"{place}: {name} is {_shown(text)}, which is no {type_}",
                    f"correct the event, or the schema of source `{self.source.name}`",
                ) from None
        return tuple(values)

    def decode(self, line: bytes, place: str) -> dict[str, Any]:
        """The JSON object of a line."""
        try:
            event = _decode(line.decode("utf-8"))
            if b"\\u" in line:
                _write(event).encode("utf-8")  # half of a surrogate pair is no text that could be written anywhere
        except UnicodeError:
            raise DataError(f"{place}: not UTF-8 text", "events are JSON objects in UTF-8, one a line") from None
        except (ValueError, RecursionError):
            text = line.decode("utf-8", "replace").strip()
            raise DataError(f"{place}: not a JSON object: {text[:SHOWN]}", "events are JSON objects, one a line") from None
        if not isinstance(event, dict):
            raise DataError(f"{place}: not a JSON object: {_shown(event)}", "events are JSON objects, one a line")
        return event

    def is_whole(self, line: bytes) -> bool:
        """Whether a last line without an end is an event already, and not one that is still being written."""
        try:
            return isinstance(_decode(line.decode("utf-8")), dict)
        except (ValueError, RecursionError):
            return False


def _cell(text: str | None, type_: str, parse: Callable[[object], Value]) -> Value:
    """A cell's value: text says true and false, and nothing is NULL."""
    if not text:
        return None
    if type_ == "boolean":
        return parse({"true": True, "false": False}.get(text.lower(), text))
    return parse(text)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
