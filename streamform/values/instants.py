"""Instants and durations: RFC 3339 text, zone-less file text, and `5m` to integer milliseconds and back.

Units: every instant is milliseconds since 1970-01-01T00:00:00Z, every duration is milliseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.(\d+))?(Z?)", re.ASCII)
_FILE_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.(\d{1,9}))?(Z?)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DURATION = re.compile(r"([0-9]+)(ms|s|m|h|d)", re.ASCII)

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MIN_INSTANT_MS = int((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) / timedelta(milliseconds=1))
MAX_INSTANT_MS = int((datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) / timedelta(milliseconds=1)) + 999


def parse_instant(text: str) -> int:
    """Milliseconds of an RFC 3339 instant in UTC: `2026-08-30T10:00:00Z`, with an optional fraction.

    A fraction beyond milliseconds is cut off.
    Raises: ValueError for other shapes, for a day that does not exist and for a time without `Z`.
    """
    match = _INSTANT.fullmatch(text)
    if match is None or not match.group(4):
        raise ValueError(f"`{text}` is not an RFC 3339 instant in UTC such as 2026-08-30T10:00:00Z")
    return _to_ms(text, match.group(1), match.group(2), match.group(3))


def parse_file_instant(text: str) -> int:
    """Milliseconds of a timestamp as files and topics hold it: ISO 8601 without a zone, read as UTC; a `Z` may trail.

    Raises: ValueError for anything else.
    """
    match = _FILE_INSTANT.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is not a timestamp such as 2026-08-30T10:00:00.123")
    time = match.group(2) if len(match.group(2)) == 8 else match.group(2) + ":00"
    return _to_ms(text, match.group(1), time, match.group(3))


def _to_ms(text: str, date: str, time: str, fraction: str | None) -> int:
    try:
        whole = datetime.fromisoformat(f"{date}T{time}+00:00")
    except ValueError as error:
        raise ValueError(f"`{text}` is not a date and time that exists ({error})") from None
    milliseconds = int((fraction or "0")[:3].ljust(3, "0"))
    delta = whole - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000 + milliseconds


def _from_ms(instant_ms: int) -> tuple[str, int]:
    seconds, milliseconds = divmod(instant_ms, 1_000)
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0"), milliseconds


def render_instant(instant_ms: int) -> str:
    """RFC 3339 with milliseconds and `Z`; a number of milliseconds outside the years 1 to 9999 stays a number."""
    if not MIN_INSTANT_MS <= instant_ms <= MAX_INSTANT_MS:
        return str(instant_ms)
    text, milliseconds = _from_ms(instant_ms)
    return f"{text}.{milliseconds:03d}Z"


def render_file_instant(instant_ms: int) -> str:
    """ISO 8601 without a zone as Flink writes it: no trailing zeros in the fraction, no fraction when it is zero."""
    text, milliseconds = _from_ms(instant_ms)
    return text if not milliseconds else f"{text}.{milliseconds:03d}".rstrip("0")


def parse_duration(text: str) -> int:
    """Milliseconds of a duration such as `30s`, `5m`, `24h` or `30d`. Raises: ValueError for other text."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is not a duration; write a whole number and ms, s, m, h or d, such as 5m")
    return int(match.group(1)) * UNIT_MS[match.group(2)]


def render_duration(duration_ms: int) -> str:
    """The duration in the largest unit that divides it: 60000 is `1m`, 86400000 is `1d`, 0 is `0s`."""
    if duration_ms == 0:
        return "0s"
    unit = next(u for u in ("d", "h", "m", "s", "ms") if duration_ms % UNIT_MS[u] == 0)
    return f"{duration_ms // UNIT_MS[unit]}{unit}"


def parse_date(text: str) -> int:
    """Days since 1970-01-01 of an ISO date. Raises: ValueError for other text and for a day that does not exist."""
    if not _DATE.fullmatch(text):
        raise ValueError(f"`{text}` is not a date such as 2026-08-30")
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise ValueError(f"`{text}` is not a day that exists ({error})") from None


def render_date(days: int) -> str:
    """The ISO date of a number of days since 1970-01-01."""
    return date.fromordinal(days + _EPOCH_DAY).isoformat()
