"""A file as a sink: lines are added at its end; its length says what has arrived."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from streamform.adapters.crashpoint import crash_point
from streamform.adapters.folder import sync_folder
from streamform.adapters.sink import ADVICE, Mark, Shape, SinkVanished, advice, check_writable
from streamform.backends.embedded.output import LineWriter
from streamform.errors import Refused, StateError
from streamform.runtime.records import INSERT, Change
from streamform.values.rows import Row

CHUNK = 1000
"""Changes that are turned into bytes at once."""


class FileSink:
    """One file of JSON lines."""

    def __init__(self, project_dir: Path, shape: Shape) -> None:
        self.name = shape.endpoint.path or ""
        self.path = project_dir / self.name
        self.shape = shape
        self.writer = LineWriter(shape.schema, shape.key, upserts=shape.upserts)

    def check_free(self) -> None:
        """A file that holds anything is somebody else's."""
        if self._size():
            raise Refused(
                f"the sink of `{self.shape.model}`, {self.name}, holds rows that this project did not write",
                "move the file away, set another path, or keep its rows: streamform apply --adopt",
            )

    def check_adoptable(self) -> None:
        """The last line is complete, so that ours begin behind it."""
        with self._told(), self.path.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            is_complete = stream.read(1) == b"\n"
        if not is_complete:
            raise Refused(
                f"the sink of `{self.shape.model}`, {self.name}, ends within a line, so it can't be adopted",
                "complete its last line, move the file away, or set another path",
            )

    def check_writable(self) -> None:
        """The folder and the file."""
        check_writable(self.path, f"the sink of `{self.shape.model}`, {self.name}")

    def prepare(self, mark: Mark) -> None:
        """Make the folder, and the file."""
        if mark.length:
            self.confirm(mark, None)
            return
        with self._told():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            sync_folder(self.path.parent)

    def clear(self, mark: Mark) -> None:
        """Cut the file off at its start."""
        with self._told():
            if self._size():
                os.truncate(self.path, 0)

    def needed(self, changes: Sequence[Change]) -> list[Change]:
        """All of them: whoever follows the file sees each."""
        return list(changes)

    def confirm(self, mark: Mark, pending: Sequence[Change] | None) -> None:
        """Add what is missing of the last delivery; everything past its start must be a part of it."""
        lines = self.writer.lines(pending or ())
        self._add(mark.length - len(lines), iter([lines] if lines else []))

    def length(self) -> int:
        """The bytes that are there."""
        return self._size()

    def length_after(self, mark: Mark, changes: Sequence[Change]) -> int:
        """The length after these lines."""
        return mark.length + len(self.writer.lines(changes))

    def amend(self, mark: Mark, changes: Iterator[Change]) -> int:
        """Add the lines of the difference."""
        return self._add(mark.length, self._chunks(changes))

    def rewrite(self, mark: Mark, rows: Iterable[Row]) -> int:
        """Write a file beside and put it in the place of this one."""
        beside = self.path.with_name(f".{self.path.name}.{mark.token}.new")
        with self._told():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as stream:
                for lines in self._chunks((INSERT, row, None) for row in rows):
                    stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
                length = stream.tell()
            crash_point("file-replacing")
            beside.replace(self.path)
            sync_folder(self.path.parent)
            crash_point("file-replaced")
        return length

    def has_shape(self) -> bool:
        """Lines have no shape of their own."""
        return True

    def close(self) -> None:
        """Nothing is held open."""

    def _chunks(self, changes: Iterable[Change]) -> Iterator[bytes]:
        pending: list[Change] = []
        for change in changes:
            pending.append(change)
            if len(pending) == CHUNK:
                yield self.writer.lines(pending)
                pending = []
        if pending:
            yield self.writer.lines(pending)

    def _add(self, start: int, chunks: Iterator[bytes]) -> int:
        """Make the file hold exactly these bytes past `start`; what is already there of them is compared, not written again."""
        size = self._size()
        if size < start or (size == 0 and not self.path.exists() and start > 0):
            raise SinkVanished(
                f"the sink of `{self.shape.model}`, {self.name}, has lost rows: {size} bytes are left of {start} that were written", ADVICE
            )
        with self._told():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("r+b" if self.path.exists() else "w+b") as stream:
                stream.seek(start)
                for chunk in chunks:
                    there = stream.read(len(chunk))
                    if there != chunk[: len(there)]:
                        raise self._foreign(start)
                    rest = chunk[len(there) :]
                    stream.write(rest[: len(rest) // 2])
                    stream.flush()
                    crash_point("file-writing")
                    stream.write(rest[len(rest) // 2 :])
                if stream.read(1):
                    raise self._foreign(start)
                stream.flush()
                os.fsync(stream.fileno())
                crash_point("file-written")
                return stream.tell()

    def _foreign(self, start: int) -> StateError:
        return StateError(
            f"the sink of `{self.shape.model}`, {self.name}, holds something past byte {start} that streamform did not write",
            "take it out of the file; only streamform may write there",
        )

    def _size(self) -> int:
        with self._told():
            return self.path.stat().st_size if self.path.exists() else 0

    def _told(self) -> _Told:
        return _Told(self.shape.model, self.name)


class _Told:
    """Turns a failure of the file system into a StateError that names the sink."""

    def __init__(self, model: str, name: str) -> None:
        self.model, self.name = model, name

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            cause = (error.strerror or str(error)).lower()
            raise StateError(f"can't write the sink of `{self.model}`, {self.name}: {cause}", advice(cause)) from None
