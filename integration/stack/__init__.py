"""Flink, its SQL Gateway and Kafka on this machine without Docker, for tests and for trying a project.

    with Stack.start(parts={"flink", "gateway", "kafka"}) as stack:
        requests.get(f"{stack.gateway_url}/info")

`python -m integration.stack` does the same from a shell.
"""

from integration.stack.errors import StackError
from integration.stack.flink import JobManager, TaskManager
from integration.stack.gateway import SqlGateway
from integration.stack.kafka import KafkaBroker
from integration.stack.stack import PARTS, Stack, missing_parts

__all__ = ["PARTS", "JobManager", "KafkaBroker", "SqlGateway", "Stack", "StackError", "TaskManager", "missing_parts"]
