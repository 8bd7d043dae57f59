"""Flink's SQL Gateway as a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import requests

from integration.stack import fetch
from integration.stack.flink import LOOK_S, Cluster, FlinkPart, class_path
from integration.stack.ports import HOST
from integration.stack.process import java_command


class SqlGateway(FlinkPart):
    """A gateway of a cluster; a cluster can have several, told apart by their labels."""

    name = "gateway"
    main = "org.apache.flink.table.gateway.SqlGateway"

    def __init__(self, cluster: Cluster, port: int, label: str = name, options: Mapping[str, str] | None = None) -> None:
        super().__init__(cluster)
        self.port = port
        self.given_label = label
        self.options = dict(options or {})
        """Settings of this gateway alone, such as sql-gateway.session.idle-timeout."""

    @property
    def label(self) -> str:
        return self.given_label

    @property
    def url(self) -> str:
        """Where its REST endpoint listens, without a version."""
        return f"http://{HOST}:{self.port}"

    def command(self) -> list[str]:
        self.cluster.write()
        settings = {
            "sql-gateway.endpoint.rest.address": HOST,
            "sql-gateway.endpoint.rest.bind-address": HOST,
            "sql-gateway.endpoint.rest.port": str(self.port),
            "sql-gateway.endpoint.rest.bind-port": str(self.port),
            **self.options,
        }
        jars: list[Path] = [
            *class_path(),
            *fetch.jars(fetch.GATEWAY),
            *(jar for jar in fetch.jars(fetch.FLINK) if jar.name.startswith("flink-python")),
        ]
        return java_command(self.cluster.java("-Xmx512m"), jars, self.main, [f"-D{key}={value}" for key, value in settings.items()])

    def environment(self) -> Mapping[str, str]:
        return {"FLINK_CONF_DIR": str(self.cluster.conf)}

    def is_ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/info", timeout=LOOK_S).ok
        except requests.RequestException:
            return False
