"""COMMANDS: every command with its options and examples."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from streamform import __version__


class Option(NamedTuple):
    """One option of a command."""

    flags: tuple[str, ...]
    help: str
    settings: dict[str, Any] | None = None


class Command(NamedTuple):
    """One command: its handler in commands.py, its options, an example of its use."""

    name: str
    run: str
    help: str
    options: tuple[Option, ...]
    examples: tuple[str, ...]
    project: bool = True
    target: bool = False
    json: bool = True


MODEL = Option(("model",), "a model; all when left out", {"nargs": "?"})
REASON = Option(("--reason",), "why; kept with the decision", {"required": True, "metavar": "TEXT"})
PLAN_IDS = Option(("plan_ids",), "ids as `apply` and `approvals` print them", {"nargs": "+", "metavar": "ID"})
UNIT = Option(("--unit",), "one unit, by its name or by any of its models", {"metavar": "UNIT"})

COMMANDS: tuple[Command, ...] = (
    Command(
        "init",
        "init",
        "write a small example project",
        (
            Option(("folder",), "the folder to write; it must not exist or be empty"),
            Option(("--dagster",), "add a Dagster code location", {"action": "store_true"}),
        ),
        ("streamform init shop",),
        project=False,
        json=False,
    ),
    Command(
        "check",
        "check",
        "find every problem of the project in one run",
        (
            Option(("--strict",), "warnings fail, too", {"action": "store_true"}),
            Option(("--format",), "text, json or sarif", {"choices": ("text", "json", "sarif"), "default": "text"}),
        ),
        ("streamform check", "streamform check --strict --json", "streamform check --format sarif > check.sarif"),
    ),
    Command(
        "test",
        "test",
        "run fixtures through the simulator",
        (
            Option(("--model",), "only fixtures of this model", {"metavar": "MODEL"}),
            Option(
                ("--fixture",),
                "run this file instead of tests/; - reads standard input",
                {"action": "append", "metavar": "FILE", "default": []},
            ),
            Option(("--strict",), "having no fixture at all fails, too", {"action": "store_true"}),
            Option(("--coverage",), "say what no fixture touches", {"action": "store_true"}),
            Option(("--junit",), "write a JUnit report, too", {"metavar": "FILE"}),
        ),
        ("streamform test", "streamform test --model customer_metrics --coverage", "streamform test --strict --junit report.xml"),
    ),
    Command(
        "explain", "explain", "show what the compiler made of a model", (MODEL,), ("streamform explain customer_metrics",), target=True
    ),
    Command(
        "inspect-plan",
        "inspect_plan",
        "show node ids, digests, schemas and contracts",
        (MODEL,),
        ("streamform inspect-plan --json > plan.json",),
        target=True,
    ),
    Command(
        "graph",
        "graph",
        "show sources, models and sinks",
        (Option(("--format",), "text, dot or mermaid", {"choices": ("text", "dot", "mermaid"), "default": "text"}),),
        ("streamform graph --format mermaid",),
        target=True,
    ),
    Command(
        "lineage",
        "lineage",
        "show which columns a column is made of",
        (Option(("column",), "MODEL or MODEL.COLUMN; every model when left out", {"nargs": "?", "metavar": "MODEL[.COLUMN]"}),),
        ("streamform lineage customer_metrics", "streamform lineage customer_metrics.total --json"),
        target=True,
    ),
    Command(
        "plan",
        "plan",
        "compare what runs with what the project describes",
        (
            Option(
                ("--against",),
                "a manifest or a record, git:REF, or target:NAME, instead of what runs on the target",
                {"metavar": "FILE"},
            ),
            Option(
                ("--identity",),
                "what the diff goes by, instead of what streamform.yml says",
                {"choices": ("conservative", "structural")},
            ),
            Option(
                ("--counterexample",),
                "show the smallest history on which going on from the old state differs from a fresh run",
                {"action": "store_true"},
            ),
            Option(("--out",), "look at the target, save the plan for apply --plan, register what needs an approval", {"metavar": "FILE"}),
            Option(("--format",), "text, json or markdown", {"choices": ("text", "json", "markdown"), "default": "text"}),
        ),
        (
            "streamform plan",
            "streamform plan --target prod --json",
            "streamform plan --against git:main --identity structural",
            "streamform plan --target prod --out prod.plan",
        ),
        target=True,
    ),
    Command(
        "build",
        "build",
        "write the SQL that would be submitted",
        (
            Option(("--backend",), "the backend to write for", {"choices": ("flink",), "required": True}),
            Option(("--stdout",), "print it instead of writing build/", {"action": "store_true"}),
        ),
        ("streamform build --backend flink --stdout",),
        target=True,
        json=False,
    ),
    Command(
        "apply",
        "apply",
        "plan, ask the gate, and carry out what it lets through",
        (
            UNIT,
            Option(("--plan",), "apply what plan --out saved; refused when something has moved since", {"metavar": "FILE"}),
            Option(("--adopt",), "keep rows of somebody else that stand in the sinks of a first apply", {"action": "store_true"}),
        ),
        ("streamform apply", "streamform apply --target prod --unit orders", "streamform apply --plan prod.plan"),
        target=True,
    ),
    Command(
        "run",
        "run",
        "apply to an embedded target, then go on consuming until interrupted",
        (),
        ("streamform run",),
        target=True,
        json=False,
    ),
    Command(
        "stop",
        "stop",
        "stop what runs, with a savepoint",
        (UNIT, Option(("--discard-state",), "stop without a savepoint; the state is lost", {"action": "store_true"})),
        ("streamform stop --target prod",),
        target=True,
    ),
    Command("status", "status", "show what runs beside what is recorded", (), ("streamform status --json",), target=True),
    Command("history", "history", "list every attempt to change a target", (), ("streamform history",), target=True),
    Command("approvals", "approvals", "list plans that wait for a decision or had one", (), ("streamform approvals --json",), target=True),
    Command(
        "approve",
        "approve",
        "approve pending plans",
        (PLAN_IDS, REASON, Option(("--acknowledge",), "the words that the plan asks for", {"metavar": "TEXT"})),
        ('streamform approve 1a2b3c4d5e6f7081 --reason "checked with finance" --acknowledge "BACKFILL REQUIRED"',),
        target=True,
    ),
    Command(
        "reject",
        "reject",
        "reject pending plans",
        (PLAN_IDS, REASON),
        ('streamform reject 1a2b3c4d5e6f7081 --reason "not before the weekend"',),
        target=True,
    ),
    Command(
        "revoke",
        "revoke",
        "take approvals back",
        (PLAN_IDS, REASON),
        ('streamform revoke 1a2b3c4d5e6f7081 --reason "wrong target"',),
        target=True,
    ),
    Command(
        "unlock",
        "unlock",
        "show who holds a target's lock, and free it when its process is gone",
        (Option(("--force",), "free it even if its process may be alive; what that process does next is lost", {"action": "store_true"}),),
        ("streamform unlock --target prod",),
        target=True,
    ),
    Command(
        "schema",
        "schema",
        "print the JSON Schema of a document, or list the documents",
        (
            Option(("document",), "a document; without one all are listed", {"nargs": "?", "metavar": "DOC"}),
            Option(("--list",), "list the documents", {"action": "store_true"}),
        ),
        ("streamform schema --list", "streamform schema project > project.schema.json"),
        project=False,
    ),
)


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser of every command, or, where one is named, of that command alone, which is made faster."""
    parser = argparse.ArgumentParser(
        prog="streamform",
        description="Streaming models as SQL: compile, test, see what a change costs, deploy.",
        epilog="Start with `streamform init shop`. Each command explains itself with --help.",
    )
    parser.add_argument("--version", action="version", version=f"streamform {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    named = [command for command in COMMANDS if command.name == chosen]
    for command in named or COMMANDS:
        _add(commands, command)
    return parser


def _add(commands: Any, command: Command) -> None:
    examples = "examples:\n" + "\n".join(f"  {example}" for example in command.examples)
    parser = commands.add_parser(
        command.name,
        help=command.help,
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=command.run)
    if command.project:
        parser.add_argument("--project", default=".", metavar="DIR", help="the project's folder (default: this one)")
    if command.target:
        parser.add_argument("--target", metavar="NAME", help="a target of streamform.yml (default: the only one)")
    if command.json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    for option in command.options:
        parser.add_argument(*option.flags, help=option.help, **(option.settings or {}))
