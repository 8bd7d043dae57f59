"""Values of functions over text, as Flink computes them. Positions count from 1; lengths are in code points."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

from streamform.sql.numeric import ValueLost

MAX_TEXT = 16 * 1024 * 1024
"""A bound on the text that padding and repeating make. Units: characters."""


def substring(text: str, start: int, length: int | None = None) -> str | None:
    """The part from a position on; a negative position counts from the end."""
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if begin < 0 or begin >= len(text):
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def left(text: str, length: int) -> str:
    """The first characters."""
    return text[:length] if length > 0 else ""


def right(text: str, length: int) -> str:
    """The last characters."""
    return text[-length:] if length > 0 else ""


def position(part: str, text: str) -> int:
    """Where a part begins, 0 when it does not occur."""
    return text.find(part) + 1


def repeat(text: str, times: int) -> str:
    """The text so many times."""
    return _bounded(text, max(0, times))


def _bounded(text: str, times: int) -> str:
    if len(text) * times > MAX_TEXT:
        raise ValueLost(f"a text of {len(text) * times} characters; the bound is {MAX_TEXT}")
    return text * times


def pad_left(text: str, length: int, filler: str) -> str | None:
    """The text cut or filled to a length from the left."""
    _refuse_wide(text, filler, "LPAD")
    padding = _padding(text, length, filler)
    return None if padding is None else padding + text[:length]


def pad_right(text: str, length: int, filler: str) -> str | None:
    """The text cut or filled to a length from the right."""
    _refuse_wide(text, filler, "RPAD")
    padding = _padding(text, length, filler)
    return None if padding is None else text[:length] + padding


def _padding(text: str, length: int, filler: str) -> str | None:
    missing = length - len(text)
    if length < 0 or not filler:
        return None
    return _bounded(filler, missing // len(filler) + 1)[:missing] if missing > 0 else ""


def replaced(text: str, part: str, replacement: str) -> str:
    """Every occurrence of a part replaced; an empty part occurs before and after every character."""
    if not part:
        _refuse_wide(text, "", "REPLACE of an empty text")
    return text.replace(part, replacement)


def _refuse_wide(text: str, other: str, what: str) -> None:
    """Flink counts characters beyond U+FFFF twice here, and may cut one in half."""
    wide = next((c for c in text + other if ord(c) > 0xFFFF), None)
    if wide is not None:
        raise ValueLost(f"{what} with the character {wide!r}, which Flink would count as two")


def capitalized(text: str) -> str:
    """Each word's first letter in upper case, its other letters in lower case; a word is letters A to Z and digits."""
    return _WORD.sub(lambda match: match.group()[0].upper() + match.group()[1:].lower(), text)


_WORD = re.compile(r"[A-Za-z0-9]+")


def split_index(text: str, separator: str, index: int) -> str | None:
    """The piece of this number, from 0; NULL when there is none."""
    if not separator:
        raise ValueLost("SPLIT_INDEX with an empty separator, which Flink takes for any blank")
    if not text or index < 0:
        return None
    pieces = text.split(separator)
    return pieces[index] if index < len(pieces) else None


def md5(text: str) -> str:
    """The MD5 of the text in UTF-8, in hex."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def sha256(text: str) -> str:
    """The SHA-256 of the text in UTF-8, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


_IN_LINE = "[^\n\r\x85\u2028\u2029]"
"""Any character that ends no line in Java."""


@lru_cache(maxsize=256)
def like_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """The expression that a LIKE pattern stands for. Raises: ValueLost for an escape that escapes nothing.

    In a pattern with _ or ESCAPE Flink lets neither _ nor % match the end of a line.
    """
    any_text = f"{_IN_LINE}*" if escape or "_" in pattern else ".*"
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            if following is None or following not in ("%", "_", escape):
                raise ValueLost(f"the LIKE pattern '{pattern}' escapes nothing after '{escape}'; Flink would fail")
            parts.append(re.escape(following))
        else:
            parts.append({"%": any_text, "_": _IN_LINE}.get(character) or re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def like(text: str, pattern: str, escape: str = "") -> bool:
    """Whether the whole text matches."""
    return like_pattern(pattern, escape).fullmatch(text) is not None


_JAVA_ONLY = re.compile(r"\\[pPQEGRXhHvVzZkNbBAucx0]|\(\?[<a-zA-Z>]|[*+?}]\+|\[[^\]]*(\[|&&)|\[\^?\]|\{,|\{(?!\d+(,\d*)?\})")
"""Constructs that Java's expressions have or read otherwise."""


@lru_cache(maxsize=256)
def portable_pattern(pattern: str) -> re.Pattern[str]:
    """An expression that means the same in Java and here. Raises: ValueError naming what does not."""
    found = _JAVA_ONLY.search(pattern)
    if found is not None:
        raise ValueError(f"the expression '{pattern}' uses {found.group()}, which does not mean the same on every backend")
    try:
        return re.compile(_as_in_java(pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"the expression '{pattern}' is not valid: {error}") from None


_DOT_OR_END = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\.|\$", re.DOTALL)


def _as_in_java(pattern: str) -> str:
    """A dot matches no end of line, of which Java knows more; a dollar sign matches before the last one."""
    java = {".": _IN_LINE, "$": r"(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z)(?<!\r(?=\n))"}
    return _DOT_OR_END.sub(lambda match: java.get(match.group(), match.group()), pattern)


def regexp_extract(text: str, pattern: str, group: int = 0) -> str | None:
    """A group of the first match, NULL where there is none."""
    compiled = portable_pattern(pattern)
    if not 0 <= group <= compiled.groups:
        return None
    match = compiled.search(text)
    return None if match is None else match.group(group)


def regexp_replace(text: str, pattern: str, replacement: str) -> str:
    """The text with every match replaced by the replacement as it is written."""
    compiled = portable_pattern(pattern)
    if compiled.match(""):
        _refuse_wide(text, "", "REGEXP_REPLACE of an empty match")
    return compiled.sub(lambda match: replacement, text)


_PATH_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[([0-9]+)\]|\['([^'\]]*)'\]")


@lru_cache(maxsize=256)
def json_path(path: str) -> tuple[str | int, ...]:
    """The steps of a path such as `$.a[0].b`. Raises: ValueError for other paths."""
    text = path.removeprefix("lax ").strip()
    if not text.startswith("$"):
        raise ValueError(f"the path '{path}' does not start with $")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        match = _PATH_STEP.match(text, at)
        if match is None:
            raise ValueError(f"the path '{path}' has something other than .name and [number] at '{text[at:]}'")
        steps.append(int(match.group(2)) if match.group(2) is not None else match.group(1) or match.group(3) or "")
        at = match.end()
    return tuple(steps)


def json_value(text: str, path: str) -> str | None:
    """The scalar at a path as text; NULL where there is none, where it is no scalar, and for text that is not JSON."""
    try:
        value, _ = _JSON.raw_decode(text.lstrip(" \t\n\r"))
    except (ValueError, RecursionError):
        return None
    for step in json_path(path):
        value = _step(value, step)
        if value is None:
            return None
    if value is None or isinstance(value, (dict, list)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value or abs(value))


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


_JSON = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)


def _step(value: object, step: str | int) -> object:
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    return value[step] if isinstance(value, list) and step < len(value) else None


def trimmer(side: str) -> Callable[..., str]:
    """TRIM on one side or both: takes away every leading or trailing character that occurs in the second operand."""
    if side == "LEADING":
        return lambda text, characters=" ": text.lstrip(characters) if characters else text
    if side == "TRAILING":
        return lambda text, characters=" ": text.rstrip(characters) if characters else text
    return lambda text, characters=" ": text.strip(characters) if characters else text
