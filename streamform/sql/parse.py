"""A model's text to a syntax tree, with places.

The parser is sqlglot's; nothing of its messages reaches users. What is checked here needs no names: that there is one
SELECT, and that source() and ref() take one quoted name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer

from streamform.codes import problem
from streamform.diagnostics import Diagnostic, Location
from streamform.project.model import Model
from streamform.sql.aggregates import AGGREGATES
from streamform.sql.functions import CALLABLE_NAMES
from streamform.sql.unsupported import FUNCTIONS_REFUSED

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # what it tells is told again as a problem of the model

MAX_NESTING = 100
INPUT_FUNCTIONS = ("source", "ref")
CALL_MARK = "\0"
"""Before a function's name: the parser then keeps name and operands as they are written, whatever the name means to it."""
SYNTAX_OF_THEIR_OWN = frozenset({"FLOOR", "CEIL", "CEILING", "SUBSTRING", "POSITION"})
"""Functions that the parser must know, because they are also written as FLOOR(a TO DAY), POSITION(a IN b) and so on."""
MARKED_NAMES = (CALLABLE_NAMES | {name.upper() for name in AGGREGATES} | FUNCTIONS_REFUSED.keys()) - SYNTAX_OF_THEIR_OWN


class SqlProblem(Exception):
    """The SQL is wrong; carries the diagnostic."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


class Statement(Struct, frozen=True):
    """One SELECT of a model file, with the text it came from."""

    model: str
    path: str
    text: str
    select: exp.Expression

    def place(self, node: exp.Expression) -> Location:
        """Where the node stands: from its first to its last token."""
        spans = [(part.meta["start"], part.meta["end"]) for part in node.walk() if "start" in part.meta]
        if not spans:
            return Location(self.path)
        start, end = min(s for s, _ in spans), max(e for _, e in spans)
        line, column = line_and_column(self.text, start)
        newline = self.text.find("\n", start)
        return Location(self.path, line, column, max(1, min(end + 1, newline if newline >= 0 else end + 1) - start))


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """1-based line and column of a character offset."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def parse_model(model: Model) -> Statement:
    """The model's SELECT. Raises: SqlProblem."""
    statements = [node for node in _parse(model.name, model.path, model.sql) if not isinstance(node, (exp.Semicolon, type(None)))]
    if not statements or not model.sql.strip():
        raise SqlProblem(problem("SF109", path=model.path, where=Location(model.path), model=model.name, found=", not none"))
    if len(statements) > 1:
        found = f", not {len(statements)}"
        raise SqlProblem(problem("SF109", path=model.path, where=Location(model.path), model=model.name, found=found))
    if not isinstance(statements[0], (exp.Select, exp.SetOperation, exp.Subquery)):
        found = f", not {_statement_name(statements[0])}"
        raise SqlProblem(problem("SF109", path=model.path, where=Location(model.path), model=model.name, found=found))
    return Statement(model.name, model.path, model.sql, statements[0])


def parse_condition(name: str, path: str, text: str) -> Statement:
    """A condition that stands alone, such as a contract's check. Raises: SqlProblem."""
    statements = [node for node in _parse(name, path, text) if node is not None]
    if len(statements) != 1:
        raise SqlProblem(problem("SF110", path=path, model=name, cause="one condition is expected"))
    return Statement(name, path, text, statements[0])


def _statement_name(node: exp.Expression) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(node).__name__).upper()


def _parse(name: str, path: str, text: str) -> list[Any]:
    _check_nesting(name, path, text)
    try:
        tokens = Tokenizer().tokenize(text)
        mark_calls(tokens)
        return list(Parser().parse(tokens, text))
    except RecursionError:
        raise SqlProblem(problem("SF120", path=path, where=Location(path), model=name, limit=MAX_NESTING)) from None
    except SqlglotError as error:
        raise SqlProblem(_syntax(name, path, text, error)) from None


def mark_calls(tokens: Sequence[Any]) -> None:
    """Mark the name of every call of a function that we know, in place."""
    for name, following in pairwise(tokens):
        is_call = following.token_type.name == "L_PAREN" and name.token_type.name != "IDENTIFIER"
        if is_call and name.text.upper() in MARKED_NAMES:
            name.text = CALL_MARK + name.text.upper()
        elif is_call and name.text.upper() == "CEILING":
            name.text = "CEIL"


def called_name(node: exp.Expr) -> str | None:
    """The name of a marked call, None for any other node."""
    if isinstance(node, exp.Anonymous) and str(node.this).startswith(CALL_MARK):
        return str(node.this)[1:]
    return None


def _check_nesting(name: str, path: str, text: str) -> None:
    depth = 0
    for position, character in enumerate(text):
        if character == "(":
            depth += 1
            if depth > MAX_NESTING:
                line, column = line_and_column(text, position)
                raise SqlProblem(problem("SF120", path=path, where=Location(path, line, column), model=name, limit=MAX_NESTING))
        elif character == ")":
            depth -= 1


def _syntax(name: str, path: str, text: str, error: SqlglotError) -> Diagnostic:
    details = (getattr(error, "errors", None) or [{}])[0]
    word, line = (details.get("highlight") or "").removeprefix(CALL_MARK), details.get("line")
    if not line:
        return problem("SF110", path=path, where=Location(path), model=name, cause="a quote or comment is not closed")
    column = max(1, (details.get("col") or 1) - max(0, len(word) - 1))
    where = Location(path, line, column, max(1, len(word.split("\n", 1)[0])))
    cause = f"`{word.strip()}` is not expected here" if word.strip() else "the statement ends too early"
    return problem("SF110", path=path, where=where, model=name, cause=cause)


def input_calls(statement: Statement, found: list[Diagnostic] | None = None) -> Iterator[tuple[str, str, exp.Expression]]:
    """Each source() and ref() in the order of the text: which of the two, the name, and the node.

    A call whose argument is not one quoted name is added to `found`; its first quoted name still counts as read.
    """
    for node in statement.select.find_all(exp.Anonymous, bfs=False):
        function = str(node.this).lower()
        if function not in INPUT_FUNCTIONS:
            continue
        try:
            yield function, input_name(statement, node), node
        except SqlProblem as problem_:
            if found is not None:
                found.append(problem_.diagnostic)
            first = node.expressions[0] if node.expressions else None
            if isinstance(first, exp.Literal) and first.is_string:
                yield function, str(first.this), node


_CALL = re.compile(r"\b(source|ref)\s*\(\s*'([^']*)'\s*\)", re.IGNORECASE)


def calls_in_text(text: str) -> list[tuple[str, str]]:
    """What a text that does not parse seems to read, so that its inputs are not called unused."""
    return [(match.group(1).lower(), match.group(2)) for match in _CALL.finditer(text)]


def input_name(statement: Statement, node: exp.Anonymous) -> str:
    """The name that a source() or ref() call gives. Raises: SqlProblem."""
    arguments = node.expressions
    if len(arguments) == 1 and isinstance(arguments[0], exp.Literal) and arguments[0].is_string:
        return str(arguments[0].this)
    where, function = statement.place(node), str(node.this).lower()
    raise SqlProblem(problem("SF111", path=statement.path, where=where, model=statement.model, function=function))
