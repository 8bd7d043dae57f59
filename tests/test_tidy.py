"""Style as a test: layers, purity, sizes, words, ids that never change, and what a start may import.

tests/tidy_exceptions.txt is the ratchet: `kind name number reason`, one a line. A number there may go down, never up, and a
line that is no longer needed fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import pytest

from streamform.codes import CODES
from streamform.diff.deployment import DEPLOYMENT
from streamform.diff.rules import RULES
from streamform.lifecycle.gate import GATE
from streamform.plan.changelog import MODES
from streamform.plan.clock import CLOCK_RULES
from streamform.sql.functions import FUNCTIONS
from tests.conftest import REPOSITORY, run_python

# layers

LAYERS: tuple[tuple[str, ...], ...] = (
    ("streamform_dagster", "streamform.cli", "streamform.testing", "streamform.pytest_plugin"),
    (
        "streamform.api",
        "streamform.session",
        "streamform.fixtures",
        "streamform.results",
        "streamform.catalog",
        "streamform.saved_plan",
        "streamform.compiling",
        "streamform.operations",
        "streamform.against",
    ),
    ("streamform.render", "streamform.adapters"),
    ("streamform.lifecycle",),
    ("streamform.simulator", "streamform.backends"),
    ("streamform.backends.base",),
    ("streamform.diff", "streamform.runtime"),
    ("streamform.identity",),
    ("streamform.plan",),
    ("streamform.sql",),
    ("streamform.project",),
    ("streamform.values",),
    ("streamform.codes",),
    ("streamform.diagnostics",),
    ("streamform.errors",),
    ("streamform",),
)
"""From top to bottom. A module imports from its own package and from rows below; beside it only within FACADE."""

FACADE = LAYERS[1]
"""The facade is one layer in several modules."""

TYPES_FROM_ABOVE = {("streamform.render", "streamform.results"), ("streamform.errors", "streamform.diagnostics")}
"""Who may name a type of a layer above in annotations: views what they show, an error the diagnostics that it carries."""

DAGSTER_MAY_IMPORT = {*FACADE, "streamform.lifecycle.ports", "streamform.errors", "streamform.diagnostics", "streamform"}
"""Sections 2 and 6 of the design: no plan logic in Dagster. Beside these it prints values through the views of render/."""

PURE = ("values", "sql", "plan", "identity", "diff", "runtime", "simulator", "render", "project")
"""The centre; project/ alone reads files, and only in FILE_READERS."""

FILE_READERS = {"streamform/project/files.py"}

IMPURE_MODULES = frozenset(
    {"asyncio", "confluent_kafka", "dagster", "glob", "http", "io", "multiprocessing", "os", "random", "requests", "secrets", "shutil"}
    | {"signal", "socket", "sqlalchemy", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib.request", "uuid"}
)
IMPURE_BUILTINS = frozenset({"open", "input", "print", "__import__"})
IMPURE_METHODS = frozenset(
    {"now", "utcnow", "today", "open", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "unlink", "urandom"}
)

# sizes

FUNCTION_LINES, MODULE_LINES, POSITIONAL = 50, 500, 6

TABLES = {
    "streamform/codes.py": "CODES: one row for each problem",
    "streamform/sql/functions.py": "FUNCTIONS: one row for each operator and function",
    "streamform/sql/casts.py": "CASTS: one row for each conversion",
    "streamform/cli/parser.py": "COMMANDS: one row for each command",
}
"""Modules that are mostly a TABLE, whose length is the number of its rows."""

EXCEPTIONS = REPOSITORY / "tests" / "tidy_exceptions.txt"


class Module(NamedTuple):
    """One source file."""

    path: str
    name: str
    text: str
    tree: ast.Module


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """The Python files below these folders."""
    found = [p for folder in folders for p in sorted((REPOSITORY / folder).rglob("*.py")) if "templates" not in p.parts]
    return tuple(map(_module, found))


def _module(file: Path) -> Module:
    path = file.relative_to(REPOSITORY).as_posix()
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    text = file.read_text("utf-8")
    return Module(path, name, text, ast.parse(text))


def product() -> tuple[Module, ...]:
    """What is shipped."""
    return modules("streamform", "streamform_dagster")


def layer(name: str) -> tuple[int, str]:
    """The row of LAYERS that a module belongs to, and the part of it."""
    parts = [
        (len(part), row, part) for row, members in enumerate(LAYERS) for part in members if name == part or name.startswith(part + ".")
    ]
    _, row, part = max(parts)
    return row, part


def imports(module: Module, *, for_types: bool) -> Iterator[tuple[str, int]]:
    """Every streamform module that is imported, at any depth: those for annotations alone, or the others."""
    guarded = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    known = {m.name for m in product()}
    for node in ast.walk(module.tree):
        if (id(node) in guarded) != for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name if name in known else node.module, node.lineno) for name in inner)


def upward(for_types: bool) -> list[str]:
    """Imports that go up or sideways."""
    wrong: list[str] = []
    for module in product():
        row, part = layer(module.name)
        for name, line in imports(module, for_types=for_types):
            if name.split(".")[0] not in ("streamform", "streamform_dagster"):
                continue
            to, other = layer(name)
            beside = to == row and other != part and not {part, other} <= set(FACADE)
            if (to < row or beside) and not (for_types and (part, other) in TYPES_FROM_ABOVE):
                wrong.append(f"{module.path}:{line} imports {name}")
    return wrong


def test_imports_go_down_the_layers_only() -> None:
    assert upward(for_types=False) == []


def test_annotations_name_types_of_lower_layers_only() -> None:
    assert upward(for_types=True) == []


def test_every_module_has_a_layer() -> None:
    top = {".".join(m.name.split(".")[:2]) for m in modules("streamform")}
    assert top - {part for row in LAYERS for part in row} == set()


def test_dagster_imports_the_facade_and_ports_only() -> None:
    wrong = [
        f"{module.path}:{line} imports {name}"
        for module in modules("streamform_dagster")
        for for_types in (False, True)
        for name, line in imports(module, for_types=for_types)
        if name.split(".")[0] == "streamform" and name not in DAGSTER_MAY_IMPORT and not name.startswith("streamform.render.")
    ]
    assert wrong == []


def test_commands_import_the_facade_and_views_only() -> None:
    allowed = {*FACADE, "streamform.errors", "streamform", "streamform.adapters.clock", "streamform.identity.manifest"}
    wrong = [
        f"{module.path}:{line} imports {name}"
        for module in modules("streamform/cli")
        for name, line in imports(module, for_types=False)
        if name.startswith("streamform") and name not in allowed and not name.startswith(("streamform.render", "streamform.cli"))
    ]
    assert wrong == []


# purity


def centre() -> list[Module]:
    """Modules that compute and reach nothing."""
    return [m for m in modules("streamform") if m.path.split("/")[1] in PURE and m.path not in FILE_READERS]


def test_the_centre_imports_nothing_that_reaches_outside() -> None:
    wrong: list[str] = []
    for module in centre():
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                wrong += [f"{module.path}:{node.lineno} imports {n}" for n in names if {n, n.split(".")[0]} & IMPURE_MODULES]
    assert wrong == []


def test_the_centre_opens_no_file_and_asks_no_clock() -> None:
    wrong: list[str] = []
    for module in centre():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            builtin = isinstance(function, ast.Name) and function.id in IMPURE_BUILTINS
            method = isinstance(function, ast.Attribute) and function.attr in IMPURE_METHODS
            if builtin or method:
                wrong.append(f"{module.path}:{node.lineno} calls {ast.unparse(function)}")
    assert wrong == []


# sizes


class Exemption(NamedTuple):
    """One line of the ratchet."""

    kind: str
    name: str
    number: int
    reason: str


def exemptions() -> dict[tuple[str, str], Exemption]:
    """The ratchet."""
    lines = [line.split(maxsplit=3) for line in EXCEPTIONS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    rows = [Exemption(kind, name, int(number), reason) for kind, name, number, reason in lines]
    return {(row.kind, row.name): row for row in rows}


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its qualified name."""
    pending: list[tuple[str, ast.AST]] = [(module.path, module.tree)]
    while pending:
        prefix, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            name = f"{prefix}::{child.name}" if named else prefix  # type: ignore[attr-defined]
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield name, child
            pending.append((name, child))


def measured(kind: str) -> dict[str, int]:
    """Everything that is over the limit of its kind, with its size."""
    sizes: dict[str, int] = {}
    for module in product():
        if kind == "module":
            sizes[module.path] = len(module.text.splitlines()) if module.path not in TABLES else 0
            continue
        for name, function in functions(module):
            if kind == "function":
                sizes[name] = (function.end_lineno or 0) - function.lineno + 1
            else:
                own = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
                sizes[name] = len([a for a in own if a not in ("self", "cls")])
    limit = {"module": MODULE_LINES, "function": FUNCTION_LINES, "parameters": POSITIONAL}[kind]
    return {name: size for name, size in sizes.items() if size > limit}


@pytest.mark.parametrize("kind", ["module", "function", "parameters"])
def test_nothing_is_over_its_limit_or_its_exemption(kind: str) -> None:
    allowed = {name: row.number for (k, name), row in exemptions().items() if k == kind}
    too_large = {name: size for name, size in measured(kind).items() if size > allowed.get(name, 0)}
    assert too_large == {}


@pytest.mark.parametrize("kind", ["module", "function", "parameters"])
def test_no_exemption_outlives_its_need(kind: str) -> None:
    over = measured(kind)
    assert [name for (k, name) in exemptions() if k == kind and name not in over] == []


# words


def public(module: Module) -> Iterator[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef]]:
    """The module, and its public classes, functions and methods that are no property."""
    yield module.path, module.tree
    for node in module.tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
            continue
        yield f"{module.path}::{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from (
                (f"{module.path}::{node.name}::{inner.name}", inner)
                for inner in node.body
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_") and not _is_property(inner)
            )


def _is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id in ("property", "cached_property") for d in node.decorator_list)


def test_everything_public_has_a_docstring() -> None:
    allowed = {name for (kind, name) in exemptions() if kind == "docstring"}
    missing = {name for module in product() for name, node in public(module) if not ast.get_docstring(node)}
    assert missing - allowed == set()
    assert allowed - missing == set()


def test_only_the_command_line_prints() -> None:
    wrong = [
        f"{module.path}:{node.lineno}"
        for module in product()
        if not module.path.startswith("streamform/cli/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert wrong == []


def test_no_work_is_left_behind_in_comments() -> None:
    marks = re.compile("|".join(a + b for a, b in (("TO", "DO"), ("FIX", "ME"), ("XX", "X"))))
    wrong = [
        f"{m.path}:{n}"
        for m in modules("streamform", "streamform_dagster", "tests", "integration")
        for n, line in enumerate(m.text.splitlines(), 1)
        if marks.search(line)
    ]
    assert wrong == []


# codes


class CodeUse(NamedTuple):
    """A call that reports a code that is written there, and the facts that it gives."""

    place: str
    code: str
    facts: frozenset[str]
    spreads: bool


def code_uses() -> Iterator[CodeUse]:
    """Every call of problem(), found() and refuse() with a code as its first operand."""
    for module in product():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
            code = node.args[0].value
            if name in ("problem", "found", "refuse") and code in CODES:
                implied = {"model"} if name == "found" else set()
                given = {keyword.arg for keyword in node.keywords if keyword.arg is not None} - {"path", "where", "subject"}
                yield CodeUse(f"{module.path}:{node.lineno}", code, frozenset(given | implied), any(k.arg is None for k in node.keywords))


def placeholders(code: str) -> set[str]:
    """The facts that a code's sentences name."""
    row = CODES[code]
    return {name for text in (row.message, row.help) for _, name, _, _ in Formatter().parse(text) if name}


def test_every_code_is_reported_somewhere() -> None:
    source = "\n".join(m.text for m in modules("streamform") if m.path != "streamform/codes.py")
    assert [code for code in CODES if f'"{code}"' not in source] == []


def test_every_report_gives_the_facts_that_its_sentences_name() -> None:
    lacking = [
        f"{use.place} {use.code} lacks {placeholders(use.code) - use.facts}"
        for use in code_uses()
        if not use.spreads and placeholders(use.code) - use.facts
    ]
    assert lacking == []


@pytest.mark.parametrize("code", CODES)
def test_the_sentences_of_a_code_can_be_filled_in(code: str) -> None:
    row = CODES[code]
    facts = {name: f"<{name}>" for name in placeholders(code)}
    message, help_ = row.message.format(**facts), row.help.format(**facts)
    assert not re.search(r"\{\{|\}\}", message + help_)
    assert message[-1] not in ".!"
    assert row.about.endswith(".")


# ids


PINNED = {
    "RULES": "K1 K2 K3 K4 K5 K6 P1 K7 K8 K9 S1 S2 S3 S4 S5 N1 N2 N3 N4 A1 A2 R1 R2 I1 I2 I3",
    "DEPLOYMENT": "D1 D2 D3 D4 D5 D6",
    "MODES": "M1 M2 M3 M8 M4 M5 M7 M9 M6",
    "CLOCK_RULES": "E1 E2 E3 E4 E5",
    "GATE": "G1 G2 G3 G4 G5 G6 G7 G8",
}
"""Ids in the order of their rows. A new row takes a new id; none is removed, renamed or used again."""

TABLES_BY_NAME: dict[str, tuple[Any, ...]] = {
    "RULES": RULES,
    "DEPLOYMENT": DEPLOYMENT,
    "MODES": MODES,
    "CLOCK_RULES": CLOCK_RULES,
    "GATE": GATE,
}


@pytest.mark.parametrize("table", PINNED)
def test_the_ids_of_a_table_are_those_that_were_published(table: str) -> None:
    assert [row.id for row in TABLES_BY_NAME[table]] == PINNED[table].split()


def test_codes_keep_their_meaning() -> None:
    pinned = dict(line.split(maxsplit=1) for line in (REPOSITORY / "tests" / "matrix" / "codes.txt").read_text().splitlines())
    assert {code: row.title for code, row in CODES.items()} == pinned


def test_no_table_has_an_id_twice() -> None:
    for name, table in TABLES_BY_NAME.items():
        ids = [row.id for row in table]
        assert len(ids) == len(set(ids)), name
    assert len({f.name for f in FUNCTIONS.values()}) == len(FUNCTIONS)


# start


HEAVY = ("dagster", "sqlalchemy", "psycopg", "sqlglot", "requests", "confluent_kafka", "pydantic", "yaml", "sqlite3")


def loaded_after(code: str, tmp_path: Path, **env: str) -> list[str]:
    """Which heavy modules a piece of Python has imported at its end."""
    tail = f"\nimport sys\nprint('LOADED', *[m for m in {HEAVY!r} if m in sys.modules])"
    done = run_python(code + tail, cwd=tmp_path, env=env)
    assert done.code == 0, done.stderr
    return done.stdout.rpartition("LOADED")[2].split()


def test_importing_streamform_imports_nothing_heavy(tmp_path: Path) -> None:
    assert loaded_after("import streamform", tmp_path) == []


def test_importing_the_facade_imports_nothing_heavy(tmp_path: Path) -> None:
    assert loaded_after("import streamform.api", tmp_path) == []


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    code = f"from streamform.cli.main import main\ntry:\n    main({arguments!r})\nexcept SystemExit:\n    pass"
    assert loaded_after(code, tmp_path) == []


def test_a_cached_plan_imports_neither_parser_nor_validator(tmp_path: Path) -> None:
    command = "from streamform.cli.main import main\n"
    first = f"{command}main(['init', 'shop'])\nmain(['plan', '--target', 'local', '--project', 'shop'])"
    again = f"{command}main(['plan', '--target', 'local', '--project', 'shop'])"
    cache = str(tmp_path / "cache")
    assert "sqlglot" in loaded_after(first, tmp_path, STREAMFORM_CACHE_DIR=cache)
    assert set(loaded_after(again, tmp_path, STREAMFORM_CACHE_DIR=cache)) & {"sqlglot", "pydantic", "dagster"} == set()
