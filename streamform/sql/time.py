"""Values of functions over timestamps and dates, as Flink computes them in UTC.

Units: a timestamp is milliseconds since the epoch, a date is days since the epoch.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from streamform.sql.numeric import ValueLost
from streamform.values.instants import MAX_INSTANT_MS, MIN_INSTANT_MS

DAY_MS = 86_400_000
UNIT_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": DAY_MS, "WEEK": 7 * DAY_MS}
UNIT_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def to_datetime(instant_ms: int) -> datetime:
    """The instant as a calendar time. Raises: ValueLost outside the years 1 to 9999."""
    if not MIN_INSTANT_MS <= instant_ms <= MAX_INSTANT_MS:
        raise ValueLost(f"{instant_ms} ms is outside the years 1 to 9999")
    return _EPOCH + timedelta(milliseconds=instant_ms)


def to_date(days: int) -> date:
    """The day as a calendar day."""
    return date.fromordinal(days + _EPOCH_DAY)


def _to_ms(moment: datetime) -> int:
    delta = moment - _EPOCH
    return delta.days * DAY_MS + delta.seconds * 1_000 + delta.microseconds // 1_000


def _checked(instant_ms: int) -> int:
    if not MIN_INSTANT_MS <= instant_ms <= MAX_INSTANT_MS:
        raise ValueLost(f"{instant_ms} ms is outside the years 1 to 9999")
    return instant_ms


def add_ms(instant_ms: int, length_ms: int) -> int:
    """The instant moved by a length."""
    return _checked(instant_ms + length_ms)


def add_months(instant_ms: int, months: int) -> int:
    """The instant moved by calendar months; a day that the month lacks becomes its last."""
    moment = to_datetime(instant_ms)
    return _to_ms(_moved(moment, months))


def _moved(moment: datetime, months: int) -> datetime:
    whole = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(whole, 12)
    if not 1 <= year <= 9999:
        raise ValueLost(f"the year {year} is outside 1 to 9999")
    return moment.replace(year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1]))


def add_ms_to_date(days: int, length_ms: int) -> int:
    """The day moved by whole days; a part of a day is cut off."""
    moved = days + (length_ms // DAY_MS if length_ms >= 0 else -(-length_ms // DAY_MS))
    _checked(moved * DAY_MS)
    return moved


def add_months_to_date(days: int, months: int) -> int:
    """The day moved by calendar months."""
    return add_months(days * DAY_MS, months) // DAY_MS


PARTS: dict[str, Callable[[datetime], int]] = {
    "YEAR": lambda t: t.year,
    "QUARTER": lambda t: (t.month - 1) // 3 + 1,
    "MONTH": lambda t: t.month,
    "WEEK": lambda t: t.isocalendar().week,
    "DAY": lambda t: t.day,
    "DOY": lambda t: t.timetuple().tm_yday,
    "DOW": lambda t: t.isoweekday() % 7 + 1,
    "HOUR": lambda t: t.hour,
    "MINUTE": lambda t: t.minute,
    "SECOND": lambda t: t.second,
}


DAY_PARTS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW")
GREGORIAN_MS = -12_212_553_600_000
"""1583-01-01, from which on Flink's rounding to months uses the calendar of today."""


def part_of_timestamp(unit: str) -> Callable[[int], int]:
    """EXTRACT of a timestamp."""
    part = PARTS[unit]
    if unit in DAY_PARTS:
        return lambda instant_ms: part(to_datetime(instant_ms))

    def part_of_day(instant_ms: int) -> int:
        if instant_ms < 0:
            raise ValueLost(f"the {unit.lower()} of a time before 1970; Flink would make it negative")
        return part(to_datetime(instant_ms))

    return part_of_day


def part_of_date(unit: str) -> Callable[[int], int]:
    """EXTRACT of a date."""
    part = PARTS[unit]
    return lambda days: part(to_datetime(days * DAY_MS))


def floor_to(unit: str) -> Callable[[int], int]:
    """The beginning of the unit that an instant lies in."""
    if unit in UNIT_MS and unit != "WEEK":
        size = UNIT_MS[unit]
        return lambda instant_ms: instant_ms - instant_ms % size
    return lambda instant_ms: _to_ms(_calendar_floor(_countable(instant_ms, unit), unit))


def _countable(instant_ms: int, unit: str) -> datetime:
    """The instant, where Flink rounds it to months as everybody does."""
    if instant_ms < GREGORIAN_MS:
        raise ValueLost(f"rounding a time before 1583 to a {unit.lower()}; Flink would count in the old calendar")
    if instant_ms < 0 and instant_ms % DAY_MS:
        raise ValueLost(f"rounding a time of the day before 1970 to a {unit.lower()}; Flink would take the next day's")
    return to_datetime(instant_ms)


def _calendar_floor(moment: datetime, unit: str) -> datetime:
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    months = UNIT_MONTHS[unit]
    return day.replace(day=1, month=(day.month - 1) // months * months + 1)


def ceil_to(unit: str) -> Callable[[int], int]:
    """The beginning of the next unit, or the instant itself where it is one."""
    floor = floor_to(unit)

    def ceil(instant_ms: int) -> int:
        begin = floor(instant_ms)
        if begin == instant_ms:
            return instant_ms
        return add_ms(begin, UNIT_MS[unit]) if unit in UNIT_MS else add_months(begin, UNIT_MONTHS[unit])

    return ceil


def difference(unit: str) -> Callable[[int, int], int]:
    """How many whole units lie from the first instant to the second, negative when it is earlier."""
    if unit in UNIT_MS:
        size = UNIT_MS[unit]
        return lambda start, end: _checked_int((end - start) // size if end >= start else -((start - end) // size))
    months = UNIT_MONTHS[unit]
    return lambda start, end: _truncated(_month_difference(start, end), months)


def _checked_int(value: int) -> int:
    if -(2**31) <= value < 2**31:
        return value
    raise ValueLost(f"{value} does not fit int32; Flink would wrap around")


def _truncated(value: int, divisor: int) -> int:
    return value // divisor if value >= 0 else -(-value // divisor)


def _month_difference(start: int, end: int) -> int:
    """Whole months between the days; one less when the last is complete but for the time of the day."""
    first, last = (to_datetime(moment - moment % DAY_MS) for moment in (start, end))
    months = _whole_months(first, last) if last >= first else -_whole_months(last, first)
    return months - 1 if _moved(first, months) == last and end % DAY_MS < start % DAY_MS else months


def _whole_months(first: datetime, last: datetime) -> int:
    months = (last.year - first.year) * 12 + last.month - first.month
    return months - 1 if _moved(first, months) > last else months


_FORMAT_FIELDS: dict[str, Callable[[datetime], str]] = {
    "yyyy": lambda t: f"{t.year:04d}",
    "yy": lambda t: f"{t.year % 100:02d}",
    "MM": lambda t: f"{t.month:02d}",
    "M": lambda t: str(t.month),
    "dd": lambda t: f"{t.day:02d}",
    "d": lambda t: str(t.day),
    "HH": lambda t: f"{t.hour:02d}",
    "H": lambda t: str(t.hour),
    "mm": lambda t: f"{t.minute:02d}",
    "m": lambda t: str(t.minute),
    "ss": lambda t: f"{t.second:02d}",
    "s": lambda t: str(t.second),
    "SSS": lambda t: f"{t.microsecond // 1_000:03d}",
}
_FORMAT_PART = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|[^A-Za-z']+")


@lru_cache(maxsize=256)
def format_parts(pattern: str) -> tuple[Callable[[datetime], str], ...]:
    """What writes each part of a DATE_FORMAT pattern. Raises: ValueError naming a letter that is not supported."""
    parts: list[Callable[[datetime], str]] = []
    at = 0
    while at < len(pattern):
        match = _FORMAT_PART.match(pattern, at)
        if match is None:
            raise ValueError(f"the format '{pattern}' has a quote that is not closed")
        at = match.end()
        parts.append(_format_part(match, pattern))
    return tuple(parts)


def _format_part(match: re.Match[str], pattern: str) -> Callable[[datetime], str]:
    text = match.group()
    if match.group(1):
        if text not in _FORMAT_FIELDS:
            raise ValueError(f"the format '{pattern}' uses {text}; supported are {', '.join(_FORMAT_FIELDS)}")
        return _FORMAT_FIELDS[text]
    literal = match.group(2).replace("''", "'") or "'" if match.group(2) is not None else text
    return lambda moment: literal


def date_format(instant_ms: int, pattern: str) -> str:
    """The instant as a pattern writes it."""
    moment = to_datetime(instant_ms)
    return "".join(part(moment) for part in format_parts(pattern))


_INTERVAL_TEXT = re.compile(r"([+-]?)(\d{1,9})")


def interval(text: str, unit: str) -> tuple[str, int]:
    """The kind (`interval` or `months`) and length of INTERVAL 'text' unit. Raises: ValueError for other forms."""
    match = _INTERVAL_TEXT.fullmatch(text.strip())
    name = unit.upper().removesuffix("S") if unit.upper() not in UNIT_MS else unit.upper()
    if match is None or (name not in UNIT_MS and name not in UNIT_MONTHS):
        raise ValueError(f"INTERVAL '{text}' {unit} is not a whole number of one unit")
    number = int(match.group(2)) * (-1 if match.group(1) == "-" else 1)
    return ("interval", number * UNIT_MS[name]) if name in UNIT_MS else ("months", number * UNIT_MONTHS[name])


def render_interval(kind: str, length: int) -> str:
    """The interval in the largest unit that divides it."""
    units = UNIT_MONTHS if kind == "months" else {unit: ms for unit, ms in UNIT_MS.items() if unit != "WEEK"}
    name = next((unit for unit in reversed(units) if length % units[unit] == 0 and unit != "QUARTER"), next(iter(units)))
    return f"INTERVAL '{length // units[name]}' {name}"
