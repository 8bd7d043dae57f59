"""Values that fit an event."""

from __future__ import annotations

import json

import pytest

from streamform_dagster.metadata import MARKDOWN_LIMIT, cut_text, digest, markdown, record_document, record_value


def json_text(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def test_a_small_record_is_kept_as_it_is() -> None:
    value = record_value(json_text({"record_version": 1, "jobs": []})).value
    assert value == {"record_version": 1, "jobs": []}
    assert record_document(value) == {"record_version": 1, "jobs": []}


def test_a_large_record_is_kept_compressed_with_its_digest() -> None:
    document = {"nodes": [{"id": f"model_{n}::filter::0", "definition": "amount > 1"} for n in range(2000)]}
    text = json_text(document)
    value = record_value(text).value
    assert isinstance(value, dict)
    assert (value["v"], value["encoding"], value["bytes"], value["sha256"]) == (1, "gzip+base64", len(text.encode()), digest(text))
    assert len(json.dumps(value)) < len(text) / 5
    assert record_document(value) == document


def test_an_envelope_that_was_changed_is_refused() -> None:
    value = dict(record_value(json_text({"nodes": list(range(10_000))})).value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="digest"):
        record_document({**value, "sha256": "0" * 64})
    with pytest.raises(ValueError, match="version 2"):
        record_document({**value, "v": 2})


def test_markdown_is_cut_at_a_line_by_bytes() -> None:
    text = "\n".join(f"line {n} → é" for n in range(10_000))
    kept = markdown(text).value or ""
    assert len(kept.encode()) <= MARKDOWN_LIMIT
    assert kept.endswith("(cut; `streamform plan` shows all)")
    assert all(line.endswith("é") for line in kept.split("\n\n")[0].splitlines())


def test_a_description_is_one_line_of_at_most_200_characters() -> None:
    assert cut_text("a\n  b") == "a b"
    assert len(cut_text("x" * 300)) == 200
