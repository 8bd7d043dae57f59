"""Files as sources: read on from a recorded position, one event a line; a directory's files in the order of their names."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from streamform.backends.embedded.events import EventParser
from streamform.errors import DataError
from streamform.project.model import Source
from streamform.values.rows import Row

TAIL = 4096
"""Bytes before a position by which a file is recognized. Units: bytes."""

ROWS = 4096
"""Rows that file_rows reads at once."""

LONGEST = 64 * 1024 * 1024
"""The longest line that is read. Units: bytes."""


class Position(Struct, frozen=True):
    """How far a file has been read."""

    offset: int = 0
    line: int = 0
    """Lines that have ended before the offset."""
    tail: str = ""
    """Digest of the bytes before the offset."""


class Batch(Struct, frozen=True):
    """Events of one source, and where reading goes on after them."""

    source: str
    rows: list[Row]
    file: str
    position: Position
    read_bytes: int
    last_line: int
    """The line of its last event."""


class FileSource:
    """The files of one source."""

    def __init__(self, project_dir: Path, source: Source) -> None:
        self.project_dir, self.source = project_dir, source
        self.declared = source.endpoint.path or ""
        self.parser = EventParser(source)

    def ends(self) -> dict[str, int]:
        """The files, in order, with their lengths now. Raises: DataError when there are none."""
        path = self.project_dir / self.declared
        try:
            if path.is_dir():
                found = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
                return {f"{self.declared.rstrip('/')}/{p.name}": p.stat().st_size for p in found}
            return {self.declared: path.stat().st_size}
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            raise DataError(f"source `{self.source.name}`: can't read {self.declared}: {cause}", "check the source's path") from None

    def batches(self, positions: Mapping[str, Position], ends: Mapping[str, int], size: int) -> Iterator[Batch]:
        """The events between positions and ends, so many rows at a time.

        Raises: DataError for a line that is no event, and for a file that is not the one that was read before.
        """
        for file, end in ends.items():
            position = positions.get(file, Position())
            self._recognize(file, position)
            while position.offset < end:
                batch = self._batch(file, position, end, size)
                if batch.position == position:
                    break
                position = batch.position
                yield batch

    def _batch(self, file: str, position: Position, end: int, size: int) -> Batch:
        rows: list[Row] = []
        offset, line, last = position.offset, position.line, position.line
        parse = self.parser.parse
        with self._open(file) as stream:
            stream.seek(offset)
            while offset < end and len(rows) < size:
                text = stream.readline(min(end - offset, LONGEST))
                if len(text) == LONGEST:
                    raise DataError(f"{file}, line {line + 1}: longer than {LONGEST} bytes", "events are JSON objects, one a line")
                if not text or not (text.endswith(b"\n") or self.parser.is_whole(text)):
                    break
                try:
                    row = parse(text, f"{file}, line {line + 1}")
                except DataError:
                    if not rows:
                        raise
                    break  # the events before it count; the next batch begins with the broken line
                if row is not None:
                    rows.append(row)
                    last = line + 1
                line += text.endswith(b"\n")
                offset += len(text)
            tail = self._tail(stream, offset)
        return Batch(self.source.name, rows, file, Position(offset, line, tail), offset - position.offset, last)

    def _recognize(self, file: str, position: Position) -> None:
        """Refuse a file whose bytes before the position are not those that were read."""
        if position.offset == 0:
            return
        with self._open(file) as stream:
            size = stream.seek(0, 2)
            if size < position.offset or self._tail(stream, position.offset) != position.tail:
                raise DataError(
                    f"source `{self.source.name}`: {file} is not the file that was read before; its first {position.offset} bytes differ",
                    "events are only added at the end; restore the file, or run `streamform stop --discard-state` and apply again",
                )

    def _tail(self, stream: BufferedReader, offset: int) -> str:
        start = max(0, offset - TAIL)
        stream.seek(start)
        return hashlib.sha256(stream.read(offset - start)).hexdigest()

    def _open(self, file: str) -> BufferedReader:
        try:
            return (self.project_dir / file).open("rb")
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            raise DataError(f"source `{self.source.name}`: can't read {file}: {cause}", "check the source's path") from None


def file_rows(project_dir: Path, source: Source, file: str) -> Iterator[Row]:
    """Every row of one file: of a .csv by its header, else as its source's format reads it. Raises: DataError."""
    if file.endswith(".csv"):
        yield from _csv_rows(project_dir, source, file)
        return
    reader = FileSource(project_dir, replace(source, endpoint=replace(source.endpoint, connector="file", path=file)))
    for batch in reader.batches({}, reader.ends(), ROWS):
        yield from batch.rows


def _csv_rows(project_dir: Path, source: Source, file: str) -> Iterator[Row]:
    """The rows of a CSV file whose first line names the columns."""
    parser = EventParser(source)
    try:
        with (project_dir / file).open(encoding="utf-8-sig", newline="") as stream:
            records = csv.DictReader(stream, strict=True)
            missing = [name for name in records.fieldnames or () if name not in source.column_names]
            if not records.fieldnames or missing:
                shown = f"names `{missing[0]}`" if missing else "has no header"
                raise DataError(
                    f"{file} {shown}, and source `{source.name}` has {', '.join(source.column_names)}", "name columns in the first line"
                )
            for record in records:
                yield parser.parse_cells(record, f"{file}, line {records.line_num}")
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise DataError(f"source `{source.name}`: can't read {file}: {cause}", "check the path") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not CSV in UTF-8: {error}", "correct the file") from None
