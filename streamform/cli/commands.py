"""One function a command: call the facade, print its view, return the exit code."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamform import api
from streamform.errors import ProjectError, StreamformError, UsageError

if TYPE_CHECKING:
    from streamform.lifecycle.approval import DecisionWord
    from streamform.lifecycle.ports import Progress
    from streamform.results import ApplyResult, PlanResult

EXIT_BY_OUTCOME = {"applied": 0, "unchanged": 0, "blocked": 1, "failed": 1}


def report_project_error(error: ProjectError) -> None:
    """Every error of a project that does not load or compile."""
    from streamform.render.problems import render_diagnostics

    print(render_diagnostics(error.diagnostics), file=sys.stderr)


def report_error(error: StreamformError) -> None:
    """One line, and one more with what to do."""
    print(f"error: {error.message}", file=sys.stderr)
    if error.help:
        print(f"  help: {error.help}", file=sys.stderr)


def show(document: Any) -> None:
    """A JSON document."""
    from streamform.render.json_text import json_text

    sys.stdout.write(json_text(document))


def write(text: str) -> None:
    """Text as it is."""
    sys.stdout.write(text)


def write_file(path: str, text: str) -> None:
    """Replace a file that the user named. Raises: UsageError when it can't be written."""
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"can't write {path}: {(error.strerror or str(error)).lower()}", "check the path") from None


def folder(arguments: Namespace) -> Path:
    """The project's folder."""
    return Path(arguments.project)


def user() -> str:
    """Who asks: the operating system's user."""
    from streamform.adapters.clock import os_user

    return os_user()


def init(arguments: Namespace) -> int:
    """Write the example project."""
    from streamform.render.init import render_init

    written = api.init(Path(arguments.folder), dagster=arguments.dagster)
    write(render_init(arguments.folder, written))
    return 0


def check(arguments: Namespace) -> int:
    """Check the project."""
    report = api.check(folder(arguments), strict=arguments.strict)
    if arguments.format == "sarif":
        from streamform.render.sarif import sarif_document

        show(sarif_document([*report.diagnostics, *report.notes]))
    else:
        from streamform.render.check import check_document, render_check

        as_json = arguments.json or arguments.format == "json"
        show(check_document(report)) if as_json else write(render_check(report))
    return 2 if report.project is None else 0 if report.passed else 1


def test(arguments: Namespace) -> int:
    """Run fixtures."""
    from streamform.render.test import render_test, test_document

    report = api.test(
        folder(arguments),
        model=arguments.model,
        files=arguments.fixture,
        stdin=sys.stdin.read,
        strict=arguments.strict,
        coverage=arguments.coverage,
    )
    if arguments.junit is not None:
        from streamform.render.junit import junit_document

        write_file(arguments.junit, junit_document(report))
    show(test_document(report)) if arguments.json else write(render_test(report))
    return 0 if report.passed else 1


def explain(arguments: Namespace) -> int:
    """Show operators."""
    from streamform.identity.manifest import build_manifest
    from streamform.render.explain import render_explain
    from streamform.render.inspect import model_inspect_document

    compiled = api.compile(folder(arguments), arguments.target)
    models = api.chosen_models(compiled, arguments.model)
    if not arguments.json:
        write(render_explain(compiled.plan, models))
        return 0
    manifest = build_manifest(compiled.plan)
    for name in models:
        show(model_inspect_document(manifest, name))
    return 0


def inspect_plan(arguments: Namespace) -> int:
    """Show identity."""
    from streamform.identity.manifest import build_manifest, manifest_document
    from streamform.render.inspect import model_inspect_document, render_inspect

    compiled = api.compile(folder(arguments), arguments.target)
    models = api.chosen_models(compiled, arguments.model)
    manifest = build_manifest(compiled.plan)
    if not arguments.json:
        write(render_inspect(manifest, models))
    else:
        show(manifest_document(manifest) if arguments.model is None else model_inspect_document(manifest, arguments.model))
    return 0


def graph(arguments: Namespace) -> int:
    """Show the graph; a cycle is an error."""
    from streamform.render.graph import graph_document, render_dot, render_graph, render_mermaid

    project, found = api.graph(folder(arguments), arguments.target)
    if arguments.json:
        show(graph_document(project, found))
        return 1 if found.cycles else 0
    api.refuse_cycles(project, found)
    views = {"text": render_graph, "dot": render_dot, "mermaid": render_mermaid}
    write(views[arguments.format](project, found))
    return 0


def lineage(arguments: Namespace) -> int:
    """Show where columns come from."""
    from streamform.render.lineage import lineage_document, render_lineage

    found = api.lineage(folder(arguments), arguments.column, target=arguments.target)
    show(lineage_document(found)) if arguments.json else write(render_lineage(found))
    return 0


def plan(arguments: Namespace) -> int:
    """Compare, and save the plan where a file is named."""
    if arguments.out is not None:
        return _save_plan(arguments)
    result = api.plan(
        folder(arguments),
        target=arguments.target,
        against=arguments.against,
        identity=arguments.identity,
        counterexamples=arguments.counterexample,
    )
    _show_plan(arguments, result)
    return 0 if result.diff.verdict.can_continue else 1


def _show_plan(arguments: Namespace, result: PlanResult, **more: Any) -> None:
    """A plan in the format that is asked for; `more` are keys of its JSON."""
    if arguments.json or arguments.format == "json":
        from streamform.render.diff import diff_document
        from streamform.render.stages import units_document

        if result.counterexamples is not None:
            from streamform.render.counterexample import counterexamples_document

            more["counterexamples"] = counterexamples_document(result.counterexamples)
        show(diff_document(result.diff, result.target) | {"units": units_document(result)} | more)
    elif arguments.format == "markdown":
        from streamform.render.diff import diff_markdown

        write(diff_markdown(result.diff) + "\n")
    else:
        write(plan_text(result))


def _save_plan(arguments: Namespace) -> int:
    from streamform import saved_plan
    from streamform.render.deploy_plan import render_saved_plan, saved_plan_document

    if arguments.against is not None or arguments.identity is not None:
        given = "--against" if arguments.against is not None else "--identity"
        raise UsageError(f"--out saves what apply would do, and {given} looks at something else", "leave one of them out")
    saved = saved_plan.save_plan(folder(arguments), Path(arguments.out), target=arguments.target, by=user())
    _show_plan(arguments, saved.result, deploy_plan=saved_plan_document(saved))
    if arguments.format == "text" and not arguments.json:
        write(render_saved_plan(saved, arguments.project))
    return 1 if saved.document["action"] == "rebuild" else 0


def plan_text(result: PlanResult) -> str:
    """The diff, the note about Flink, what apply would do, and counterexamples where they were asked for."""
    from streamform.render.diff import render_diff
    from streamform.render.stages import plan_notes, render_stages

    shown = render_diff(result.diff, result.project, result.against) + plan_notes(result) + render_stages(result)
    if result.counterexamples is None:
        return shown
    from streamform.render.counterexample import render_counterexamples

    return shown + render_counterexamples(result.counterexamples)


def build(arguments: Namespace) -> int:
    """Write the SQL."""
    written = api.build(folder(arguments), arguments.target, to_folder=not arguments.stdout)
    for warning in written.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if arguments.stdout:
        write(written.text)
    else:
        write("".join(f"wrote {path}\n" for path in written.files))
    return 0


def apply(arguments: Namespace) -> int:
    """Apply."""
    from streamform.render.apply import apply_document, render_apply

    def on_plan(result: PlanResult) -> None:
        situation = result.situation
        costs = situation is not None and any(unit.staging.consequences for unit in situation.units)
        if not arguments.json and (costs or not result.diff.is_empty):
            write(plan_text(result) + "\n")
            sys.stdout.flush()

    settings: dict[str, Any] = {"by": user(), "progress": progress_printer(), "on_plan": on_plan}
    if arguments.plan is None:
        result = api.apply(folder(arguments), target=arguments.target, unit=arguments.unit, adopt=arguments.adopt, **settings)
    elif arguments.adopt:
        raise UsageError("--adopt makes a plan of its own, and --plan applies one that was saved", "leave one of them out")
    else:
        from streamform.saved_plan import apply_saved_plan

        result = apply_saved_plan(folder(arguments), Path(arguments.plan), target=arguments.target, unit=arguments.unit, **settings)
    show(apply_document(result)) if arguments.json else write(render_apply(result, arguments.project))
    return EXIT_BY_OUTCOME[result.outcome]


def run(arguments: Namespace) -> int:
    """Apply, then go on until interrupted."""
    import signal
    import threading

    from streamform.render.apply import render_apply

    stop = threading.Event()

    def on_applied(applied: ApplyResult) -> None:
        write(render_apply(applied, arguments.project))
        sys.stdout.flush()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())

    result = api.run(folder(arguments), target=arguments.target, by=user(), stop=stop, progress=progress_printer(), on_applied=on_applied)
    return EXIT_BY_OUTCOME[result.outcome]


def stop(arguments: Namespace) -> int:
    """Stop."""
    from streamform.render.apply import apply_document, render_apply

    result = api.stop(
        folder(arguments),
        target=arguments.target,
        unit=arguments.unit,
        discard_state=arguments.discard_state,
        by=user(),
        progress=progress_printer(),
    )
    show(apply_document(result)) if arguments.json else write(render_apply(result, arguments.project))
    return EXIT_BY_OUTCOME[result.outcome]


def status(arguments: Namespace) -> int:
    """Show what runs."""
    from streamform.render.lifecycle import render_status, status_document

    result = api.status(folder(arguments), target=arguments.target)
    show(status_document(result)) if arguments.json else write(render_status(result))
    return 2 if result.problem is not None else 0 if result.passed else 1


def history(arguments: Namespace) -> int:
    """Show attempts."""
    from streamform.render.lifecycle import history_document, render_history

    _, entries = api.history(folder(arguments), target=arguments.target)
    counted = api.revisions(folder(arguments), target=arguments.target)
    show(history_document(entries, counted)) if arguments.json else write(render_history(entries, counted))
    return 0


def approvals(arguments: Namespace) -> int:
    """Show registered plans."""
    from streamform.render.lifecycle import approvals_document, render_approvals

    _, views = api.approvals(folder(arguments), target=arguments.target)
    show(approvals_document(views)) if arguments.json else write(render_approvals(views))
    return 0


def approve(arguments: Namespace) -> int:
    """Approve."""
    return _decide(arguments, "approve", arguments.acknowledge)


def reject(arguments: Namespace) -> int:
    """Reject."""
    return _decide(arguments, "reject", None)


def revoke(arguments: Namespace) -> int:
    """Revoke."""
    return _decide(arguments, "revoke", None)


def _decide(arguments: Namespace, decision: DecisionWord, acknowledge: str | None) -> int:
    from streamform.render.lifecycle import approvals_document

    views = api.decide(
        folder(arguments),
        arguments.plan_ids,
        decision,
        by=user(),
        reason=arguments.reason,
        acknowledge=acknowledge,
        target=arguments.target,
    )
    if arguments.json:
        show(approvals_document(views))
    else:
        write("".join(f"{view.plan.plan_id} of unit {view.plan.unit}: {decision} written; the plan is {view.status}\n" for view in views))
    return 0


def unlock(arguments: Namespace) -> int:
    """Free a lock."""
    from streamform.render.lifecycle import render_unlock, unlock_document

    result = api.unlock(folder(arguments), target=arguments.target, force=arguments.force)
    show(unlock_document(result)) if arguments.json else write(render_unlock(result))
    return 0


def schema(arguments: Namespace) -> int:
    """Print a JSON Schema."""
    from streamform.render.schema import documents_document, render_documents, schema_document

    if arguments.document is not None and not arguments.list:
        show(schema_document(arguments.document))
    else:
        show(documents_document()) if arguments.json else write(render_documents())
    return 0


def progress_printer() -> Any:
    """Progress on standard error: one line that is rewritten on a terminal, plain lines elsewhere."""
    terminal = sys.stderr.isatty() and not os.environ.get("NO_COLOR")

    def tell(event: Progress) -> None:
        share = "" if event.fraction is None else f" {event.fraction:.0%}"
        line = f"{event.stage}: {event.text}{share}"
        print(
            f"\r\033[K{line}" if terminal else line,
            end="" if terminal and event.fraction not in (None, 1.0) else "\n",
            file=sys.stderr,
            flush=True,
        )

    return tell
