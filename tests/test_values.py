"""Values: instants, durations, types, and how documents and files write them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamform.values.instants import (
    MAX_INSTANT_MS,
    MIN_INSTANT_MS,
    parse_duration,
    parse_file_instant,
    parse_instant,
    render_duration,
    render_file_instant,
    render_instant,
)
from streamform.values.rows import (
    Column,
    document_value,
    file_parser,
    file_value,
    parse_document_value,
    render_decimal,
    render_schema,
    round_decimal,
)
from streamform.values.types import (
    BOOLEAN,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
    parse_rendered_type,
    parse_type,
)

INSTANT = 1_788_084_000_000
"""2026-08-30T10:00:00Z. Units: milliseconds."""

# instants


@pytest.mark.parametrize(
    ("text", "instant_ms"),
    [
        ("2026-08-30T10:00:00Z", INSTANT),
        ("2026-08-30T10:00:00.5Z", INSTANT + 500),
        ("2026-08-30T10:00:00.123456Z", INSTANT + 123),
        ("2026-08-30T10:00:00.9999Z", INSTANT + 999),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00Z", MIN_INSTANT_MS),
        ("9999-12-31T23:59:59.999Z", MAX_INSTANT_MS),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
    ],
)
def test_an_rfc_3339_instant_is_milliseconds(text: str, instant_ms: int) -> None:
    assert parse_instant(text) == instant_ms


@pytest.mark.parametrize(
    "text",
    [
        "10:00:00",
        "2026-08-30",
        "2026-08-30T10:00:00",
        "2026-08-30 10:00:00Z",
        "2026-08-30t10:00:00Z",
        "2026-08-30T10:00:00z",
        "2026-08-30T10:00:00+00:00",
        "2026-02-30T10:00:00Z",
        "2025-02-29T10:00:00Z",
        "2026-08-30T24:00:00Z",
        "2026-08-30T23:59:60Z",
        "2026-08-30T10:00Z",
        "2026-08-30T10:00:00.Z",
        "\u0662\u0660\u0662\u0666-08-30T10:00:00Z",
        "2026-08-30T10:00:00Z ",
        "",
    ],
)
def test_any_other_text_is_no_instant(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_instant(text)


@given(st.integers(MIN_INSTANT_MS, MAX_INSTANT_MS))
def test_an_instant_survives_its_text(instant_ms: int) -> None:
    assert parse_instant(render_instant(instant_ms)) == instant_ms
    assert parse_file_instant(render_file_instant(instant_ms)) == instant_ms


def test_an_instant_outside_the_calendar_is_shown_as_a_number() -> None:
    assert render_instant(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("instant_ms", "text"),
    [(INSTANT, "2026-08-30T10:00:00"), (INSTANT + 120, "2026-08-30T10:00:00.12"), (INSTANT + 1, "2026-08-30T10:00:00.001")],
)
def test_files_hold_instants_without_zone_and_without_trailing_zeros(instant_ms: int, text: str) -> None:
    assert render_file_instant(instant_ms) == text


@pytest.mark.parametrize("text", ["2026-08-30T10:00:00", "2026-08-30 10:00:00", "2026-08-30T10:00:00Z", "2026-08-30T10:00"])
def test_files_may_hold_instants_in_several_forms(text: str) -> None:
    assert parse_file_instant(text) == INSTANT


# durations


@pytest.mark.parametrize(
    ("text", "rendered"),
    [("5m", "5m"), ("60s", "1m"), ("007s", "7s"), ("24h", "1d"), ("90s", "90s"), ("0d", "0s"), ("1500ms", "1500ms"), ("7d", "7d")],
)
def test_a_duration_is_shown_in_the_largest_unit_that_divides_it(text: str, rendered: str) -> None:
    assert render_duration(parse_duration(text)) == rendered


@pytest.mark.parametrize("text", ["5", "5min", "1w", "-5m", "1.5h", "", " 5m", "5 m", "\u0665m"])
def test_any_other_text_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**15))
def test_a_duration_survives_its_text(duration_ms: int) -> None:
    assert parse_duration(render_duration(duration_ms)) == duration_ms


# types


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("int32", INT32),
        ("int64", INT64),
        ("float64", FLOAT64),
        ("string", STRING),
        ("boolean", BOOLEAN),
        ("timestamp", TIMESTAMP),
        ("decimal", decimal(38, 9)),
        ("decimal(12,2)", decimal(12, 2)),
        ("decimal( 12 , 2 )", decimal(12, 2)),
        ("decimal(38,38)", decimal(38, 38)),
    ],
)
def test_a_document_names_types(text: str, type_: DataType) -> None:
    assert parse_type(text) == type_


@pytest.mark.parametrize(
    "text", ["int", "Int64", "varchar", "decimal(12)", "decimal(39,2)", "decimal(0,0)", "decimal(5,6)", "date", "null"]
)
def test_any_other_text_is_no_type(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_type(text)


@pytest.mark.parametrize("type_", [INT32, INT64, FLOAT64, STRING, BOOLEAN, TIMESTAMP, decimal(12, 2), decimal(38, 0)])
def test_a_type_survives_its_text_in_a_manifest(type_: DataType) -> None:
    assert parse_rendered_type(str(type_)) == type_


def test_a_schema_is_shown_in_order() -> None:
    assert render_schema((Column("a", INT64), Column("t", TIMESTAMP))) == "[a: int64, t: timestamp(millisecond)]"


# values in fixtures

NUMBER = Decimal


@pytest.mark.parametrize(
    ("raw", "type_", "value"),
    [
        (None, INT64, None),
        (5, INT64, 5),
        (NUMBER("5.0"), INT64, 5),
        (2**63 - 1, INT64, 2**63 - 1),
        (-(2**63), INT64, -(2**63)),
        (2**31 - 1, INT32, 2**31 - 1),
        (NUMBER("1.50"), decimal(12, 2), NUMBER("1.50")),
        ("1.5", decimal(12, 2), NUMBER("1.50")),
        ("9" * 38, decimal(38, 0), NUMBER("9" * 38)),
        (3, decimal(12, 2), NUMBER("3.00")),
        (NUMBER("99999999999.999999999"), decimal(38, 9), NUMBER("99999999999.999999999")),
        (NUMBER("1.5"), FLOAT64, 1.5),
        (3, FLOAT64, 3.0),
        (float("inf"), FLOAT64, float("inf")),
        ("text", STRING, "text"),
        (True, BOOLEAN, True),
        ("2026-08-30T10:00:00Z", TIMESTAMP, INSTANT),
        (-1, TIMESTAMP, -1),
    ],
)
def test_a_fixture_gives_a_column_a_value(raw: Any, type_: DataType, value: Any) -> None:
    parsed = parse_document_value(raw, type_)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("raw", "type_"),
    [
        ("5", INT64),
        (NUMBER("5.5"), INT64),
        (2**63, INT64),
        (2**31, INT32),
        (True, INT64),
        (NUMBER("1e30"), INT64),
        (NUMBER("NaN"), INT64),
        (NUMBER("1.234"), decimal(12, 2)),
        (NUMBER("12345678901.00"), decimal(12, 2)),
        ("1_000", decimal(12, 2)),
        ("\u0661", decimal(12, 2)),
        ("NaN", decimal(12, 2)),
        ("Infinity", decimal(12, 2)),
        ("", decimal(12, 2)),
        (NUMBER("1e400"), FLOAT64),
        ("1.5", FLOAT64),
        (5, STRING),
        ("yes", BOOLEAN),
        (1, BOOLEAN),
        ("10:00:00", TIMESTAMP),
        (NUMBER("1.5"), TIMESTAMP),
        (2**63, TIMESTAMP),
        ([1], STRING),
        ({"a": 1}, INT64),
    ],
)
def test_a_value_that_its_type_can_not_hold_is_refused(raw: Any, type_: DataType) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the caller names column and type
        parse_document_value(raw, type_)


@pytest.mark.parametrize(
    ("value", "type_", "shown"),
    [
        (NUMBER("1.50"), decimal(12, 2), "1.5"),
        (NUMBER("-0.00"), decimal(12, 2), "0"),
        (INSTANT, TIMESTAMP, "2026-08-30T10:00:00.000Z"),
        (float("nan"), FLOAT64, "NaN"),
        (float("-inf"), FLOAT64, "-Infinity"),
        (5, INT64, 5),
        (None, STRING, None),
    ],
)
def test_reports_hold_a_value_without_loss(value: Any, type_: DataType, shown: Any) -> None:
    assert document_value(value, type_) == shown


@pytest.mark.parametrize(
    ("value", "text"), [("1.50", "1.5"), ("1E+2", "100"), ("0.00", "0"), ("-0", "0"), ("100", "100"), ("1E-3", "0.001")]
)
def test_a_decimal_is_shown_as_plain_digits(value: str, text: str) -> None:
    assert render_decimal(NUMBER(value)) == text


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20))
def test_the_text_of_a_decimal_is_the_same_number(value: Decimal) -> None:
    assert NUMBER(render_decimal(value)) == value


@pytest.mark.parametrize(("value", "rounded"), [("1.005", "1.01"), ("-1.005", "-1.01"), ("1.004", "1.00"), ("2.5", "2.50")])
def test_a_decimal_is_rounded_half_away_from_zero(value: str, rounded: str) -> None:
    assert str(round_decimal(NUMBER(value), 2)) == rounded


# values in files


@pytest.mark.parametrize(
    ("raw", "type_", "value"),
    [
        (5, INT64, 5),
        (" 5 ", INT64, 5),
        ("-5", INT64, -5),
        (NUMBER("1.005"), decimal(12, 2), NUMBER("1.01")),
        ("1.5", decimal(12, 2), NUMBER("1.50")),
        ("9" * 38, decimal(38, 0), NUMBER("9" * 38)),
        ("1.5", FLOAT64, 1.5),
        (1, STRING, "1"),
        (True, STRING, "true"),
        ("x", STRING, "x"),
        (False, BOOLEAN, False),
        ("2026-08-30T10:00:00.000", TIMESTAMP, INSTANT),
        (None, TIMESTAMP, None),
    ],
)
def test_a_file_gives_a_column_a_value_as_flink_reads_it(raw: Any, type_: DataType, value: Any) -> None:
    assert file_parser(type_)(raw) == value


@pytest.mark.parametrize(
    ("raw", "type_"),
    [
        (NUMBER("5.5"), INT64),
        (2**31, INT32),
        ("x", INT64),
        (True, INT64),
        (NUMBER("12345678901"), decimal(12, 2)),
        ("1_000", decimal(12, 2)),
        ("1_000", FLOAT64),
        ("nan", FLOAT64),
        ("1e999", FLOAT64),
        (True, FLOAT64),
        ([1], STRING),
        ("true", BOOLEAN),
        (INSTANT, TIMESTAMP),
        ("2026-02-30T00:00:00", TIMESTAMP),
    ],
)
def test_a_file_value_that_flink_would_lose_is_refused(raw: Any, type_: DataType) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the caller names file, line and column
        file_parser(type_)(raw)


@pytest.mark.parametrize(
    ("value", "type_"), [(INSTANT, TIMESTAMP), (5, INT64), (NUMBER("1.50"), decimal(12, 2)), ("x", STRING), (True, BOOLEAN)]
)
def test_what_a_sink_writes_a_source_reads(value: Any, type_: DataType) -> None:
    assert file_parser(type_)(file_value(value, type_)) == value
