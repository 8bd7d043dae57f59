"""Projects whose compiled plans are recorded from a real gateway, for tests of what can be carried between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

COLUMNS = {"k": "int64", "i": "int32", "v": "decimal(12,2)", "s": "string", "at": "timestamp"}
EVENTS: dict[str, Any] = {"connector": "kafka", "topic": "events", "schema": COLUMNS, "event_time": "at", "watermark": "10s"}
WIDER: dict[str, Any] = {**EVENTS, "schema": {"a_column": "string", **COLUMNS}}
LATER: dict[str, Any] = {**EVENTS, "watermark": "20s"}
UPSERT = {"materialized": "upsert", "key": ["k"]}
APPEND = {"materialized": "append"}

CLEAN = "SELECT k, v, s FROM source('e') WHERE s <> 'x' AND v > 0"
TOTALS = "SELECT k, SUM(v) AS total, MAX(v) AS top FROM ref('clean') GROUP BY k"
BIG = "SELECT k, total FROM ref('totals') WHERE total > 5"
WINDOWS = "SELECT k, window_start, window_end, SUM(v) AS total FROM source('e') GROUP BY k, window_start, window_end"


def shop(clean: str = CLEAN, totals: str = TOTALS, big: str = BIG, source: dict[str, Any] = EVENTS, **totals_config: Any) -> dict[str, Any]:
    """Cleaned events, totals by key, and those above a threshold."""
    models = {"clean": (clean, APPEND), "totals": (totals, {**UPSERT, **totals_config}), "big": (big, UPSERT)}
    return {"models": models, "source": source}


def only_totals(totals: str = TOTALS, **totals_config: Any) -> dict[str, Any]:
    """The same without a reader of the totals."""
    return {"models": {"clean": (CLEAN, {"materialized": "append", "sink": None}), "totals": (totals, {**UPSERT, **totals_config})}}


def windows(query: str = WINDOWS, size: str = "5m") -> dict[str, Any]:
    """Totals by window."""
    return {"models": {"w": (query, {**APPEND, "window": {"type": "tumbling", "size": size}})}}


PROJECTS: dict[str, dict[str, Any]] = {
    "base": shop(),
    "threshold": shop(big=BIG.replace("5", "7")),
    "renamed_columns": shop(
        totals=TOTALS.replace("total", "sum_of_v").replace("top", "highest"),
        big=BIG.replace("total", "sum_of_v").replace("ref('sum_of_vs')", "ref('totals')"),
    ),
    "conjuncts_swapped": shop(clean=CLEAN.replace("s <> 'x' AND v > 0", "v > 0 AND s <> 'x'")),
    "other_filter": shop(clean=CLEAN.replace("v > 0", "v > 1")),
    "wider_source": shop(source=WIDER),
    "other_watermark": shop(source=LATER),
    "totals": only_totals(),
    "sum_to_max": only_totals(TOTALS.replace("SUM(v) AS total", "MIN(v) AS total")),
    "reordered": only_totals("SELECT k, MAX(v) AS top, SUM(v) AS total FROM ref('clean') GROUP BY k"),
    "added": only_totals(TOTALS.replace("MAX(v) AS top", "MAX(v) AS top, COUNT(*) AS n")),
    "removed": only_totals("SELECT k, SUM(v) AS total FROM ref('clean') GROUP BY k"),
    "reordered_laid_out": {**only_totals("SELECT k, MAX(v) AS top, SUM(v) AS total FROM ref('clean') GROUP BY k"), "takes_over": "totals"},
    "removed_laid_out": {**only_totals("SELECT k, SUM(v) AS total FROM ref('clean') GROUP BY k"), "takes_over": "totals"},
    "first_removed_laid_out": {**only_totals("SELECT k, MAX(v) AS top FROM ref('clean') GROUP BY k"), "takes_over": "totals"},
    "removed_from_shop": {**shop(totals="SELECT k, SUM(v) AS total FROM ref('clean') GROUP BY k"), "takes_over": "base", "layouts": 1},
    "windows_two": windows(WINDOWS.replace("SUM(v) AS total", "SUM(v) AS total, COUNT(*) AS n")),
    "windows_removed_laid_out": {**windows(WINDOWS.replace("SUM(v) AS total", "COUNT(*) AS n")), "takes_over": "windows_two"},
    "filtered_call": only_totals(TOTALS.replace("MAX(v)", "MAX(v) FILTER (WHERE v > 3)")),
    "other_key": only_totals("SELECT s AS k, SUM(v) AS total, MAX(v) AS top FROM ref('clean') GROUP BY s"),
    "retention": only_totals(retention="1h"),
    "windows": windows(),
    "windows_output": windows(WINDOWS.replace("SUM(v) AS total", "SUM(v) AS amount")),
    "windows_larger": windows(size="10m"),
    "two_levels": {
        "models": {
            "counts": ("SELECT k, COUNT(*) AS n FROM source('e') GROUP BY k", UPSERT),
            "sizes": ("SELECT n AS k, COUNT(*) AS keys FROM ref('counts') GROUP BY n", UPSERT),
        }
    },
}


def write_project(folder: Path, name: str) -> Path:
    """Write one of PROJECTS into a folder."""
    made = PROJECTS[name]
    models = made["models"]
    (folder / "models").mkdir(parents=True)
    for model, (query, _) in models.items():
        (folder / "models" / f"{model}.sql").write_text(query + "\n")
    config = {model: {"sink": {"connector": "kafka", "topic": f"{model}-out"}, **settings} for model, (_, settings) in models.items()}
    config = {model: {key: value for key, value in settings.items() if value is not None} for model, settings in config.items()}
    target = {"backend": "flink", "flink": {"gateway": "http://localhost:8083"}, "kafka": {"bootstrap_servers": "localhost:9092"}}
    document = {"name": "carry", "version": 1, "models": config, "targets": {"prod": target}}
    (folder / "streamform.yml").write_text(yaml.safe_dump(document))
    (folder / "sources.yml").write_text(yaml.safe_dump({"sources": {"e": made.get("source", EVENTS)}}))
    return folder
