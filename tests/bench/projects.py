"""Projects of any size: a third of the models filters a source, a third groups those, a third filters the groups."""

from __future__ import annotations

from pathlib import Path

SOURCE = 'schema: {{id: int64, k{n}: int64, v: "decimal(12,2)", status: string, at: timestamp}}, event_time: at, watermark: 1m'


def write_project(folder: Path, models: int) -> Path:
    """A project with so many models, which compiles; a source for each hundred of them."""
    (folder / "models").mkdir(parents=True)
    config, sources = [], []
    for n in range((models + 2) // 3):
        if n % 33 == 0:
            sources.append(f"  s{n // 33}: {{connector: kafka, topic: t{n // 33}, key: [k{n // 33}], {SOURCE.format(n=n // 33)}}}")
        key = f"k{n // 33}"
        sql = {
            f"clean_{n}": f"SELECT {key}, v, status FROM source('s{n // 33}') WHERE status <> 'test' AND v > {n}",
            f"total_{n}": f"SELECT {key}, SUM(v) AS total, COUNT(*) AS number, MAX(v) AS most FROM ref('clean_{n}') GROUP BY {key}",
            f"big_{n}": f"SELECT {key}, total FROM ref('total_{n}') WHERE total > {100 + n}",
        }
        for name, text in sql.items():
            (folder / "models" / f"{name}.sql").write_text(text + "\n")
        config.append(f"  total_{n}: {{materialized: upsert, key: [{key}], sink: {{connector: kafka, topic: total-{n}}}}}")
        config.append(f"  big_{n}: {{materialized: upsert, key: [{key}]}}")
    target = 'targets: {prod: {backend: flink, flink: {gateway: "http://localhost:8083"}, kafka: {bootstrap_servers: "localhost:9092"}}}'
    (folder / "streamform.yml").write_text("\n".join(["name: bench", "version: 1", "models:", *config, target, ""]))
    (folder / "sources.yml").write_text("\n".join(["sources:", *sources, ""]))
    return folder


def write_events(file: Path, events: int, keys: int) -> None:
    """Orders as JSON lines, in the order of their times."""
    with file.open("w") as out:
        for n in range(events):
            minute, second = divmod(n // 100, 60)
            hour, minute = divmod(minute, 60)
            day, hour = divmod(hour, 24)
            at = f"2026-01-{1 + day % 28:02d}T{hour:02d}:{minute:02d}:{second:02d}"
            out.write(f'{{"k": {n * 7919 % keys}, "v": {n % 1000}.25, "status": "paid", "at": "{at}"}}\n')
