"""Secrets by reference: ${NAME} in targets, resolved from the environment at the last moment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from streamform.errors import UsageError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_CREDENTIALS = re.compile(r"(^|,|//)[^/,]*@")


def resolve(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text with every ${NAME} replaced. Raises: UsageError naming a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environment:
            raise UsageError(f"the environment variable {name} is not set, and the target refers to ${{{name}}}", f"set {name}")
        return environment[name]

    return _REFERENCE.sub(value, text)


def referenced(texts: Iterable[str]) -> set[str]:
    """The names of every ${NAME} in the texts."""
    return {name for text in texts for name in _REFERENCE.findall(text)}


def without_credentials(address: str) -> str:
    """An address, or several with commas between, as it may be shown and hashed."""
    return _CREDENTIALS.sub(r"\1", address)
