"""Who asked and who decided: what the run coordinator stamped, else the system, else nobody.

A tag that somebody typed counts for nothing. `HeaderRunCoordinator` overwrites it on every launch with what the
authenticating proxy in front of the web server says; without such a coordinator nobody is known.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import dagster as dg
from dagster import DagsterInstance, DagsterRun, QueuedRunCoordinator

from streamform_dagster._compat import SCHEDULE_TAG, SENSOR_TAG, SubmitRunContext
from streamform_dagster.metadata import key

USER_TAG = key("user")
SYSTEM = "system"
HEADER_VARIABLE = "STREAMFORM_USER_HEADER"
DEFAULT_HEADER = "X-Forwarded-Email"


class Person(NamedTuple):
    """Who stands behind a run. `name` is empty where nobody is known."""

    name: str
    verified: bool


class HeaderRunCoordinator(QueuedRunCoordinator):
    """Queues runs, and stamps each with the user that a trusted proxy names in a header.

    The header is $STREAMFORM_USER_HEADER, else X-Forwarded-Email. It protects only where the proxy removes the header
    from what clients send, and where nothing else can reach the web server.
    """

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Stamp, then queue."""
        user = context.get_request_header(os.environ.get(HEADER_VARIABLE) or DEFAULT_HEADER) or ""
        self._instance.add_run_tags(context.dagster_run.run_id, {USER_TAG: user})
        return super().submit_run(context)


def person_of(instance: DagsterInstance, run: DagsterRun) -> Person:
    """Who stands behind a run."""
    stamped = run.tags.get(USER_TAG) if isinstance(instance.run_coordinator, HeaderRunCoordinator) else None
    if stamped:
        return Person(stamped, True)
    automatic = SCHEDULE_TAG in run.tags or SENSOR_TAG in run.tags
    return Person(SYSTEM if automatic else "", False)


def run_of(context: dg.OpExecutionContext | dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> DagsterRun:
    """The run of a context, with the tags that it has now."""
    run = context.run
    return context.instance.get_run_by_id(run.run_id) or run
