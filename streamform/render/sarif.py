"""Problems as SARIF 2.1.0, which code hosts show beside the lines that they concern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamform import __version__
from streamform.codes import CODES
from streamform.diagnostics import Diagnostic

SARIF_VERSION = "2.1.0"


def sarif_document(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """One run with a rule for each code that occurs."""
    codes = sorted({d.code for d in diagnostics})
    driver = {"name": "streamform", "version": __version__, "rules": [_rule(code) for code in codes]}
    results = [_result(d, codes.index(d.code)) for d in diagnostics]
    return {"version": SARIF_VERSION, "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]}


def _rule(code: str) -> dict[str, Any]:
    row = CODES[code]
    return {
        "id": row.id,
        "name": "".join(word.capitalize() for word in row.title.replace("'", "").split()),
        "shortDescription": {"text": row.title},
        "fullDescription": {"text": row.about},
        "defaultConfiguration": {"level": row.severity},
    }


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    text = diagnostic.message if not diagnostic.help else f"{diagnostic.message}. {diagnostic.help}"
    result: dict[str, Any] = {"ruleId": diagnostic.code, "ruleIndex": rule, "level": diagnostic.severity, "message": {"text": text}}
    file = diagnostic.where.file if diagnostic.where is not None else diagnostic.path
    if file is not None:
        place: dict[str, Any] = {"artifactLocation": {"uri": file.replace("\\", "/")}}
        where = diagnostic.where
        if where is not None and where.line:
            place["region"] = {"startLine": where.line, "startColumn": where.column, "endColumn": where.column + max(1, where.length)}
        result["locations"] = [{"physicalLocation": place}]
    return result
