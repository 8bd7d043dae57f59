"""What a test needs of the machine. STREAMFORM_REQUIRE_STACK=1 makes a machine that lacks it a failure."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest


def require(missing: Sequence[str]) -> None:
    """Skip the test where something is missing, or fail it where nothing may be. `missing` are sentences that say what to do."""
    if not missing:
        return
    text = "; ".join(missing)
    if os.environ.get("STREAMFORM_REQUIRE_STACK") == "1":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
