"""Printed JSON is the document, whatever its shape."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamform.render.json_text import json_text

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())


@given(
    st.recursive(
        SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)), max_leaves=40
    )
)
def test_the_text_is_the_document(document: Any) -> None:
    assert json.loads(json_text(document)) == document


def test_only_the_first_levels_are_indented() -> None:
    text = json_text({"a": [{"b": [{"c": [1, 2]}]}]})
    assert text == '{\n  "a": [\n    {\n      "b": [\n        {"c": [1, 2]}\n      ]\n    }\n  ]\n}\n'
