"""Which versions of everything belong together; deploy/ uses the same ones, which integration/test_deploy.py checks."""

from __future__ import annotations

JAVA = 17
"""The oldest major version of Java that both Flink's and Kafka's servers run on."""

FLINK = "2.2.1"
KAFKA_CONNECTOR = "5.0.0-2.2"
"""The second half is the line of Flink that the connector is built for."""

KAFKA = "4.2.1"
KAFKA_SCALA = "2.13"
KAFKA_LOG4J = "2.25.4"
"""Of the log binding; Kafka brings log4j itself in this version."""

MAVEN_DEPENDENCY_PLUGIN = "3.8.1"

POSTGRES = "17"
PYTHON = "3.11"
