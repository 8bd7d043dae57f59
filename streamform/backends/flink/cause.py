"""Causes: the one line of a Java stack that says what went wrong, without secrets, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

MAX_CAUSE = 600
"""Characters of a cause that are shown."""
MIN_SECRET = 3
"""Shorter values are not replaced, since they occur everywhere."""

_FRAME = re.compile(r"^\s*(at [\w.$/<>]+\(|\.\.\. \d+ (more|common frames))|^\s*Suppressed: |^End of exception on server side|^\s*$")
_CLASS = re.compile(r"^(?:[a-z][\w]*\.)+(?P<name>[A-Z][\w$]*)(?::\s*|$)")
_SECRET = re.compile(
    r"""(?ix) ( ['"]? [\w.\-]* (?:password|secret|token|jaas|credential|api[._-]?key|sasl\.username) [\w.\-]* ['"]? \s* [=:] \s* )
        ( '(?:[^']|'')*' | "[^"]*" | [^\s,;)]+ )"""
)


class Advice(NamedTuple):
    """One row: what a cause contains, and what to do."""

    mark: str
    help: str


ADVICE = (
    Advice("Could not find any factory for identifier 'kafka'", "the SQL Gateway lacks the Kafka connector; put its jar into lib/"),
    Advice("Could not find any factory for identifier 'upsert-kafka'", "the SQL Gateway lacks the Kafka connector; put its jar into lib/"),
    Advice("Could not find any factory for identifier", "the SQL Gateway lacks a connector or format; put its jar into lib/"),
    Advice("RowTime field should not be null", "an event has no event time; a contract with not_null on the column takes such events out"),
    Advice("JsonParseException", "an event is not what the source's schema says; timestamps are written without Z"),
    Advice("Failed to deserialize", "an event is not what the source's schema says; timestamps are written without Z"),
    Advice("UnknownTopicOrPartitionException", "create the topic, or correct its name"),
    Advice("NoResourceAvailableException", "free task slots, or add TaskManagers"),
    Advice("StateMigrationException", "the state does not fit the plan that was restored"),
    Advice("Cannot map checkpoint/savepoint state", "the savepoint belongs to another plan"),
    Advice("is NOT NULL, however, a null value is being written", "a key is NULL; filter with IS NOT NULL"),
    Advice("transaction timeout is larger", "set the broker's transaction.max.timeout.ms higher"),
)


def root_cause(stack: str) -> str:
    """The innermost cause of a Java stack: its last `Caused by:`, over several lines where its message is."""
    lines = stack.replace("\r", "").split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith("Caused by: ")]
    if starts:
        begin, first = starts[-1], lines[starts[-1]].removeprefix("Caused by: ")
    else:
        begin = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("<Exception on server side")), 0)
        first = lines[begin].removeprefix("<Exception on server side:")
    message = [first]
    for line in lines[begin + 1 :]:
        if _FRAME.match(line):
            break
        message.append(line.strip())
    return _shown(" ".join(part for part in message if part))


def _shown(cause: str) -> str:
    match = _CLASS.match(cause)
    text = cause
    if match is not None:
        rest = cause[match.end() :].strip()
        text = rest or match["name"]
        if match["name"] not in _PLAIN and rest:
            text = f"{match['name']}: {rest}"
    return text if len(text) <= MAX_CAUSE else text[:MAX_CAUSE] + " .."


_PLAIN = frozenset(
    {"ValidationException", "SqlParserException", "SqlParseException", "TableException", "RuntimeException", "SqlExecutionException"}
)
"""Classes whose names say nothing that their messages do not."""


def advice(cause: str) -> str | None:
    """What to do about a cause, where it is a known one."""
    return next((row.help for row in ADVICE if row.mark in cause), None)


def redacted(text: str, secrets: Mapping[str, str]) -> str:
    """The text with resolved references turned back into ${NAME}, and values of options that sound secret taken out."""
    for name, value in sorted(secrets.items(), key=lambda item: -len(item[1])):
        if len(value) >= MIN_SECRET:
            text = text.replace(value, f"${{{name}}}")
    return _SECRET.sub(lambda match: f"{match.group(1)}***", text)
