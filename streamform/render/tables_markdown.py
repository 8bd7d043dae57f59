"""The TABLEs as documentation pages, so that what users read is what decides."""

from __future__ import annotations

from collections.abc import Iterable

from streamform.codes import CODES, Code
from streamform.diff.deployment import DEPLOYMENT
from streamform.diff.rules import RULES
from streamform.identity.keys import IDENTITIES
from streamform.identity.rewrites import REWRITES
from streamform.lifecycle.gate import GATE
from streamform.plan.changelog import MODES
from streamform.plan.clock import CLOCK_RULES
from streamform.render.schema import DOCUMENTS
from streamform.render.words import title
from streamform.sql.aggregates import AGGREGATES
from streamform.sql.casts import CASTS
from streamform.sql.functions import FUNCTIONS, MANY, Function
from streamform.sql.unsupported import CLAUSES, EXPRESSIONS, FUNCTIONS_REFUSED

GENERATED = "<!-- Printed from the tables in the source by `make docs`; edit those. -->\n\n"


def pages() -> dict[str, str]:
    """Every page that is generated from the tables below the command line, by its path below docs/."""
    codes = {f"codes/{code.id}.md": _code(code) for code in CODES.values()}
    return {"rules.md": _rules(), "codes/README.md": _codes(), "sql.md": _sql(), "documents.md": _documents(), **codes}


def markdown_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in lines) + "\n"


def _rules() -> str:
    diff = markdown_table(
        ("row", "kind of change", "classification", "what plan says", "why"),
        ((r.id, f"`{r.kind.value}`", r.classification.text, r.sentence, r.why) for r in RULES),
    )
    deployment = markdown_table(
        ("row", "fact", "classification", "where keyed state is computed from it", "what plan says"),
        ((d.id, d.field, d.classification.text, d.keyed.text, d.sentence) for d in DEPLOYMENT),
    )
    modes = markdown_table(("row", "operator", "over", "emits", "why"), ((m.id, m.node, m.over, m.emits, m.why) for m in MODES))
    clock = markdown_table(("row", "declaration", "meaning"), ((c.id, f"`{c.declaration}`", c.meaning) for c in CLOCK_RULES))
    rewrites = markdown_table(("row", "what may differ", "why it computes the same"), ((r.id, r.name, r.proof) for r in REWRITES))
    identities = markdown_table(
        ("identity", "of", "two are equal when", "compared across plans", "here"),
        ((i.name, i.scope, i.equal_when, "yes" if i.across_plans else "no", i.here) for i in IDENTITIES),
    )
    gate = markdown_table(("row", "opens", "rule"), ((g.id, "yes" if g.opens else "no", g.sentence) for g in GATE))
    return (
        f"{GENERATED}# Rules\n\n## The plan diff\n\nOf the rows that apply to a node the most severe wins, the first of equals.\n\n{diff}\n"
        f"## Deployment facts\n\nWhat no manifest holds, compared with the artifact of the last apply.\n\n{deployment}\n"
        f"## Structural identity\n\nThe rewrites that change no structural key. The list is closed.\n\n{rewrites}\n"
        f"Identities, and which of them decide anything between two plans:\n\n{identities}\n"
        f"## Changelog modes\n\n{modes}\n## Event time\n\n{clock}\n## The gate\n\nThe first row that applies decides.\n\n{gate}"
    )


def _codes() -> str:
    rows = ((f"[{c.id}]({c.id}.md)", c.severity, c.title) for c in CODES.values())
    return f"{GENERATED}# Problems that check reports\n\n{markdown_table(('code', 'severity', 'what'), rows)}"


def _code(code: Code) -> str:
    """The page of one code."""
    return (
        f"{GENERATED}# {code.id}: {code.title}\n\n"
        f"*{code.severity}*: {_braces(code.message)}\n\n{code.about}\n\n"
        f"What to do: {_braces(code.help)}\n\nNames in braces stand for parts of your project. [All codes](README.md)\n"
    )


def _braces(template: str) -> str:
    return template.replace("{{", "{").replace("}}", "}")


def _documents() -> str:
    rows = ((f"`{d.name}`", d.about, d.written, d.read) for d in DOCUMENTS)
    return (
        f"{GENERATED}# Documents\n\n"
        "Every document has a version, which is 1 for all of these. A reader refuses other versions and unknown fields.\n\n"
        f"{markdown_table(('document', 'what it is', 'written by', 'read by'), rows)}\n"
        "`streamform schema NAME` prints the JSON Schema of a document (draft 2020-12), `streamform schema --list` lists them:\n\n"
        "```sh\nstreamform schema project > project.schema.json\n```\n\n"
        "An editor that takes JSON Schemas for YAML completes and checks `streamform.yml`, `sources.yml` and fixtures with them.\n\n"
        "`inspect-plan MODEL --json` prints the part of one model, which has no application digest; its schema is `plan-manifest`, too. "
        "Where a document holds more than the published format, the additions stand under keys of their own.\n"
    )


def _sql() -> str:
    kinds = sorted({source for source, _ in CASTS})
    casts = markdown_table(
        ("from", "to"), ((f"`{kind}`", ", ".join(f"`{target}`" for source, target in CASTS if source == kind)) for kind in kinds)
    )
    aggregates = markdown_table(("aggregate", "what it is"), ((f"`{a.name.upper()}`", a.about) for a in AGGREGATES.values()))
    refused = [(construct, instead) for construct, instead in (*CLAUSES.values(), *EXPRESSIONS.values())]
    refused += [(f"`{name}`", why) for name, why in FUNCTIONS_REFUSED.items()]
    return (
        f"{GENERATED}# SQL\n\n{_SQL_INTRODUCTION}\n\n{_functions()}## Aggregates\n\nAlso `AGGREGATE(DISTINCT a)` and `AGGREGATE(a) FILTER (WHERE b)`.\n\n{aggregates}\n"
        f"## CAST\n\nTRY_CAST is NULL where text is no such value.\n\n{casts}\n"
        f"## Refused\n\n{markdown_table(('what', 'what to write instead, or why'), refused)}"
    )


_SQL_INTRODUCTION = (
    "A model is one SELECT over source() and ref(): columns, `*`, expressions with AS, WHERE, GROUP BY, HAVING, DISTINCT, UNION ALL, "
    "subqueries in FROM and CTEs. Unquoted names fold to lower case. A function of a NULL is NULL where nothing else is said."
)


def _functions() -> str:
    groups = dict.fromkeys(f.group for f in FUNCTIONS.values())
    return "".join(
        f"## {title(group)}\n\n{markdown_table(('written', 'what it is'), map(_function, (f for f in FUNCTIONS.values() if f.group == group)))}\n"
        for group in groups
    )


def _function(function: Function) -> tuple[str, str]:
    written = _WRITTEN.get(function.name)
    if written is None:
        shown = "abcd"[: max(1, min(function.arity[1], 3))]
        written = function.rendered(list(shown) if function.arity[1] != MANY else ["a", "b", "..."])
        if written.startswith("(") and written.endswith(")"):
            written = written[1:-1]
    return f"`{written}`", function.about


_WRITTEN = {
    "CASE": "CASE WHEN a THEN b ELSE c END",
    "IN": "a IN (b, ...)",
    "NEGATE": "-a",
}
"""Functions whose notation is not made of a name and operands."""
