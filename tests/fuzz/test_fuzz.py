"""No damaged project makes streamform fail in any other way than by an error about the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from .mutate import fuzz

SEED = 4


def test_a_few_hundred_damaged_projects(tmp_path: Path) -> None:
    found = fuzz(tmp_path, SEED, 400)
    assert found == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_damaged_projects(tmp_path: Path, seed: int) -> None:
    cases = 20_000
    found = fuzz(tmp_path, seed, cases)
    print(f"{cases} damaged projects, {len(found)} failures")
    assert found == []
