"""JSON Schemas of the documents that commands print: the published fields, and beside them those of design section 5.

What the published format does not have may be left out, so that its documents are valid, too.
"""

from __future__ import annotations

from typing import get_args

from streamform.diff.model import Change, ChangeKind, Classification, NoteKind
from streamform.lifecycle.approval import Status
from streamform.lifecycle.stages import Observed, StageKind
from streamform.project.model import Connector, Materialized
from streamform.render.schema_part import (
    ANY_OBJECT,
    COUNT,
    DIGEST,
    FLAG,
    INSTANT,
    TEXT,
    TEXTS,
    Maybe,
    Part,
    Schema,
    list_of,
    one_of,
    shape,
    version_field,
)
from streamform.runtime.records import OPERATIONS

# words

CLASSIFICATION = Part("Classification", one_of(c.text for c in Classification))
CHANGE = Part("Change", one_of(get_args(Change)))
CHANGE_KIND = Part("ChangeKind", one_of(kind.value for kind in ChangeKind))
CONNECTOR = Part("Connector", one_of(get_args(Connector)))
FORMAT = Part("Format", one_of(("json", "csv")))
MATERIALIZED = Part("Materialized", one_of(get_args(Materialized)))
OPERATION = Part("Operation", one_of(OPERATIONS))
OBSERVED = Part("Observed", one_of(get_args(Observed)))
STAGE_KIND = Part("StageKind", one_of(get_args(StageKind)))
JOB_STATE = Part(
    "JobState",
    one_of(("running", "running-unverified", "starting", "restarting", "failed", "stopped", "missing", "unowned")),
)
TARGET_STATE = Part("TargetState", one_of(("reachable", "gateway-unreachable", "jobmanager-unreachable")))
CONSEQUENCE_KIND = Part(
    "ConsequenceKind",
    one_of(
        (
            "state-starts-empty",
            "replay-from-earliest",
            "skip-history",
            "foreign-rows",
            "rewrites-keys",
            "duplicates-rows",
            "table-must-be-empty",
            "gap",
            "old-state",
            "state-carries-over",
            "output-changes",
            "rollback",
            "state-discarded",
            "rewrites-rows",
            "stale-rows",
            "foreign-rows",
        )
    ),
)
DEPLOY_ACTION = Part("DeployAction", one_of(("no-op", "initial", "rebuild", "restore", "upgrade")))

# what several documents hold

CONSEQUENCE = Part(
    "Consequence", shape("Something that applying does to state or output.", {"kind": CONSEQUENCE_KIND, "subject": TEXT, "text": TEXT})
)
STAGE = Part("Stage", shape("One act of an apply, with the facts that it needs.", {"kind": STAGE_KIND, "text": TEXT}, is_open=True))
APPROVAL = Part(
    "Approval",
    shape(
        "Whether the unit's plan needs an approval, what it is worth now, and the words that an approver repeats.",
        {"required": FLAG, "status": Maybe(one_of(get_args(Status))), "acknowledge": Maybe(TEXT)},
    ),
)
UNIT_FIELDS = {
    "name": TEXT,
    "models": TEXTS,
    "plan_id": TEXT,
    "verdict": CLASSIFICATION,
    "requires": CLASSIFICATION,
    "stages": list_of(STAGE),
    "consequences": list_of(CONSEQUENCE),
    "approval": APPROVAL,
}
UNIT = Part("Unit", shape("One unit of deployment: what apply would do to it.", UNIT_FIELDS))

# diff

FIELD_CHANGE = Part("FieldChange", shape("A field of a node that differs.", {"field": TEXT, "old": TEXT, "new": TEXT}))
NODE_DIFF = Part(
    "NodeDiff",
    shape(
        "A node that was added, removed or changed; `rule` is the row that decided.",
        {
            "id": TEXT,
            "operator": TEXT,
            "change": CHANGE,
            "classification": CLASSIFICATION,
            "kind": Maybe(CHANGE_KIND),
            "reason": TEXT,
            "fields": list_of(FIELD_CHANGE),
            "rule": Maybe(TEXT),
        },
    ),
)
MODEL_DIFF = Part(
    "ModelDiff",
    shape(
        "A model with its nodes that differ; without `change` nothing does.",
        {"name": TEXT, "change": Maybe(CHANGE), "verdict": CLASSIFICATION, "nodes": list_of(NODE_DIFF)},
    ),
)
SIDE = Part("Side", shape("One side of the comparison.", {"application_digest": DIGEST, "applied_at": Maybe(INSTANT)}))
DEPLOYMENT_CHANGE = Part(
    "DeploymentChange",
    shape(
        "A fact of the deployment that differs and that no manifest holds.",
        {
            "subject": TEXT,
            "field": TEXT,
            "old": TEXT,
            "new": TEXT,
            "classification": CLASSIFICATION,
            "rule": TEXT,
            "reason": TEXT,
        },
    ),
)
DIFF_NOTE = Part(
    "DiffNote",
    shape(
        "Something worth knowing that decides nothing: what structural identity proves, or a hint to add.",
        {"kind": one_of(get_args(NoteKind)), "subject": TEXT, "counterpart": TEXT, "rewrites": TEXT, "text": TEXT},
    ),
)
WRITTEN_PLAN = Part(
    "WrittenPlan",
    shape("The deploy plan that --out wrote.", {"file": TEXT, "plan_id": TEXT, "action": DEPLOY_ACTION, "digest": DIGEST}),
)


def diff_schema() -> Schema:
    """What `plan --json` prints."""
    about = "What differs between the running plan and the desired one, and what apply would do. Without `running` nothing is recorded."
    return shape(
        about,
        {
            "diff_version": version_field(1),
            "target": Maybe(TEXT),
            "running": Maybe(SIDE),
            "desired": SIDE,
            "verdict": CLASSIFICATION,
            "models": list_of(MODEL_DIFF),
            "warnings": TEXTS,
            "notes": Maybe(list_of(DIFF_NOTE)),
            "deployment": Maybe(list_of(DEPLOYMENT_CHANGE)),
            "units": Maybe(list_of(UNIT)),
            "counterexamples": Maybe(list_of(ANY_OBJECT)),
            "deploy_plan": Maybe(WRITTEN_PLAN),
        },
    )


# deploy plan

PLANNED_CHANGE = Part("PlannedChange", shape("A node that changes.", {"node": TEXT, "kind": CHANGE_KIND, "classification": CLASSIFICATION}))
RUNNING_JOB = Part(
    "RunningJob",
    shape("A job that must still run when the plan is applied.", {"job_id": TEXT, "job_name": TEXT, "artifact_digest": Maybe(DIGEST)}),
)
PRECONDITIONS = Part(
    "Preconditions",
    shape(
        "What must still hold when the plan is applied.",
        {"running": list_of(RUNNING_JOB), "savepoint": Maybe(TEXT), "stop_attempt": Maybe(TEXT), "recorded_attempt": Maybe(TEXT)},
    ),
)
DEPLOY_UNIT = Part(
    "DeployUnit",
    shape(
        "One unit of the plan. `subject` is what its plan id is the digest of: both sides, what was observed, addresses, stages, policy.",
        {**UNIT_FIELDS, "action": DEPLOY_ACTION, "job_name": Maybe(TEXT), "observed": OBSERVED, "subject": ANY_OBJECT},
    ),
)


def deploy_plan_schema() -> Schema:
    """What `plan --out` writes."""
    about = (
        "A plan that was saved to be applied as it is. `digest` is that of the document without it, as JSON with sorted keys and no spaces."
    )
    return shape(
        about,
        {
            "deploy_plan_version": version_field(1),
            "plan_id": TEXT,
            "created_at": INSTANT,
            "streamform_version": TEXT,
            "application": TEXT,
            "target": TEXT,
            "backend": TEXT,
            "action": DEPLOY_ACTION,
            "fresh": Maybe(FLAG),
            "artifact_digest": DIGEST,
            "job_name": TEXT,
            "application_digest": DIGEST,
            "verdict": Maybe(CLASSIFICATION),
            "changes": Maybe(list_of(PLANNED_CHANGE)),
            "preconditions": PRECONDITIONS,
            "consequences": list_of(CONSEQUENCE),
            "notes": Maybe(TEXTS),
            "units": Maybe(list_of(DEPLOY_UNIT)),
            "digest": Maybe(DIGEST),
        },
    )


# graph

PLACE = {"connector": CONNECTOR, "target": Maybe(TEXT)}
GRAPH_SOURCE = Part("GraphSource", shape("A declared source.", {"name": TEXT, **PLACE}))
GRAPH_SINK = Part("GraphSink", shape("Where a model is written to.", PLACE))
READS = Part("Reads", shape("What a model reads.", {"sources": TEXTS, "models": TEXTS}))
GRAPH_MODEL = Part(
    "GraphModel",
    shape("A model.", {"name": TEXT, "materialized": MATERIALIZED, "key": TEXTS, "sink": Maybe(GRAPH_SINK), "reads": READS}),
)
EDGE = Part("Edge", shape("Who is read by whom, as source:NAME and model:NAME.", {"from": TEXT, "to": TEXT}))


def graph_schema() -> Schema:
    """What `graph --json` prints."""
    return shape(
        "Sources, models and sinks. `order` is empty for models in cycles; those are listed.",
        {
            "graph_version": version_field(1),
            "project": TEXT,
            "sources": list_of(GRAPH_SOURCE),
            "models": list_of(GRAPH_MODEL),
            "edges": list_of(EDGE),
            "order": TEXTS,
            "cycles": list_of(TEXTS),
        },
    )


# check report

WHERE = Part("Where", shape("A place in a file, counted from 1.", {"file": TEXT, "line": COUNT, "column": COUNT}))
DIAGNOSTIC = Part(
    "Diagnostic",
    shape(
        "A problem: its stable code, what is wrong, what to do.",
        {
            "severity": one_of(("error", "warning", "note")),
            "message": TEXT,
            "path": Maybe(TEXT),
            "help": Maybe(TEXT),
            "code": Maybe(TEXT),
            "where": Maybe(WHERE),
        },
    ),
)
ENDPOINT_FIELDS = {"connector": CONNECTOR, "format": FORMAT, "topic": Maybe(TEXT), "path": Maybe(TEXT), "table": Maybe(TEXT)}
ENDPOINT = Part("Endpoint", shape("Where events come from or changes go to.", ENDPOINT_FIELDS))
PROJECT_SUMMARY = Part("ProjectSummary", shape("The project.", {"name": TEXT, "schema_version": COUNT, "root": TEXT}))
MODEL_SUMMARY = Part(
    "ModelSummary",
    shape("A model.", {"name": TEXT, "path": TEXT, "materialized": MATERIALIZED, "key": TEXTS, "sink": Maybe(ENDPOINT)}),
)
SOURCE_SUMMARY = Part(
    "SourceSummary", shape("A source with the number of its columns.", {"name": TEXT, **ENDPOINT_FIELDS, "columns": COUNT})
)
FIXTURE_SUMMARY = Part(
    "FixtureSummary", shape("A fixture with the number of its items.", {"model": TEXT, "path": TEXT, "given": COUNT, "expect": COUNT})
)


def check_report_schema() -> Schema:
    """What `check --json` prints."""
    return shape(
        "Every problem of a project. Advice stands under `notes` and never counts.",
        {
            "check_version": version_field(1),
            "loaded": FLAG,
            "passed": FLAG,
            "strict": FLAG,
            "project": Maybe(PROJECT_SUMMARY),
            "models": list_of(MODEL_SUMMARY),
            "sources": list_of(SOURCE_SUMMARY),
            "fixtures": list_of(FIXTURE_SUMMARY),
            "diagnostics": list_of(DIAGNOSTIC),
            "notes": Maybe(list_of(DIAGNOSTIC)),
        },
    )


# test report

RECORD = Part(
    "Record",
    shape(
        "A changelog record; `before` is the row before an update.", {"op": OPERATION, "columns": ANY_OBJECT, "before": Maybe(ANY_OBJECT)}
    ),
)
ROW_REPORT = Part(
    "RowReport",
    shape(
        "What was expected beside what came; `problem` says how they differ.",
        {"index": COUNT, "expected": Maybe(RECORD), "actual": Maybe(RECORD), "problem": Maybe(TEXT)},
    ),
)
LISTED_REPORT = Part(
    "ListedReport",
    shape(
        "An event that is listed as late or quarantined beside the one that was.",
        {"index": COUNT, "expected": Maybe(ANY_OBJECT), "actual": Maybe(ANY_OBJECT), "problem": Maybe(TEXT)},
    ),
)
FIXTURE_REPORT = Part(
    "FixtureReport",
    shape(
        "One fixture. Counts of 0 and empty lists of dropped events are left out.",
        {
            "model": TEXT,
            "path": TEXT,
            "passed": FLAG,
            "error": Maybe(TEXT),
            "events_processed": COUNT,
            "changes_emitted": COUNT,
            "rows": list_of(ROW_REPORT),
            "verdict": Maybe(CLASSIFICATION),
            "final": Maybe(list_of(ROW_REPORT)),
            "late_dropped": Maybe(COUNT),
            "late": Maybe(list_of(LISTED_REPORT)),
            "quarantined_events": Maybe(COUNT),
            "quarantined": Maybe(list_of(LISTED_REPORT)),
        },
    ),
)
FILTER_COVERAGE = Part(
    "FilterCoverage",
    shape(
        "How many rows a condition kept and dropped.",
        {"node": TEXT, "definition": TEXT, "kept": COUNT, "dropped": COUNT, "gap": Maybe(TEXT)},
    ),
)
MODEL_COVERAGE = Part(
    "ModelCoverage",
    shape(
        "What the fixtures reach of a model.",
        {
            "model": TEXT,
            "fixtures": COUNT,
            "fixtures_of_readers": COUNT,
            "covered": FLAG,
            "filters": list_of(FILTER_COVERAGE),
            "never_late": TEXTS,
        },
    ),
)


def test_report_schema() -> Schema:
    """What `test --json` prints."""
    return shape(
        "The outcome of every fixture.",
        {
            "report_version": version_field(1),
            "passed": FLAG,
            "fixtures": list_of(FIXTURE_REPORT),
            "coverage": Maybe(list_of(MODEL_COVERAGE)),
        },
    )


# status

APPLIED = Part(
    "Applied",
    shape(
        "What the applied record says.",
        {"applied_at": INSTANT, "streamform_version": TEXT, "artifact_digest": Maybe(DIGEST), "job_name": Maybe(TEXT)},
    ),
)
TASKS = Part("Tasks", shape("Tasks of a job.", {"running": COUNT, "total": COUNT}))
JOB = Part(
    "Job",
    shape(
        "A job that the backend or the record knows.",
        {
            "job_id": TEXT,
            "state": JOB_STATE,
            "recorded": FLAG,
            "name": Maybe(TEXT),
            "backend_status": Maybe(TEXT),
            "start_time": Maybe(TEXT),
            "failure": Maybe(TEXT),
            "tasks": Maybe(TASKS),
        },
    ),
)
STOPPED = Part(
    "StoppedWithSavepoint",
    shape(
        "A job that was stopped and can go on.",
        {"attempt": TEXT, "savepoint": TEXT, "artifact_digest": DIGEST, "stopped_at": INSTANT, "flink_version": Maybe(TEXT)},
    ),
)
UNRESOLVED = Part(
    "Unresolved",
    shape(
        "An attempt whose outcome is not known yet; the next apply finds out.",
        {"attempt": TEXT, "state": TEXT, "job_name": TEXT, "matching_jobs": TEXTS, "plan": Maybe(TEXT)},
    ),
)
UNIT_STATUS = Part(
    "UnitStatus", shape("A unit that is recorded as applied.", {"name": TEXT, "observed": OBSERVED, "detail": Maybe(TEXT), "models": TEXTS})
)


def status_schema() -> Schema:
    """What `status --json` prints."""
    return shape(
        "What runs beside what is recorded.",
        {
            "status_version": version_field(1),
            "application": TEXT,
            "target": TEXT,
            "target_state": TARGET_STATE,
            "tasks_checked": FLAG,
            "applied": Maybe(APPLIED),
            "jobs": list_of(JOB),
            "passed": FLAG,
            "problem": Maybe(TEXT),
            "stopped_with_savepoint": Maybe(STOPPED),
            "unresolved": Maybe(list_of(UNRESOLVED)),
            "units": Maybe(list_of(UNIT_STATUS)),
        },
    )
