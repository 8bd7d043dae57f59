"""YAML text to plain values with positions.

YAML 1.2's core schema: `yes` is text, `1e2` is a number, timestamps are text. Whole numbers become int, other numbers
become Decimal so that no digit is lost, `.nan` and `.inf` become float. Duplicate keys, tags, merge keys, several
documents, deep nesting and alias bombs are refused with their place.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml
from msgspec import Struct
from yaml.resolver import BaseResolver

from streamform.codes import problem
from streamform.diagnostics import Diagnostic, Location

MAX_DEPTH = 64
MAX_NODES = 2_000_000
MAX_BYTES = 64 * 1024 * 1024
MAX_DIGITS = 400
"""Characters from which on a number is taken as text."""
MAX_UNSIGNED = 2**64 - 1

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)
_CONSTANTS = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_PLAIN_TAGS = (None, "!", BaseResolver.DEFAULT_SEQUENCE_TAG, BaseResolver.DEFAULT_MAPPING_TAG)
_NUMBER_START = frozenset("+-.0123456789")

Path = tuple[str | int, ...]

if getattr(yaml, "__with_libyaml__", False):
    from yaml.cyaml import CParser as _Parser  # type: ignore[attr-defined]

    class _Loader(_Parser, BaseResolver):
        """libyaml's parser; scalars are resolved here, not by tag."""

        def __init__(self, stream: str) -> None:
            _Parser.__init__(self, stream)
            BaseResolver.__init__(self)
else:  # pragma: no cover - PyYAML without its extension
    from yaml.composer import Composer
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):  # type: ignore[no-redef]
        """The pure Python parser; scalars are resolved here, not by tag."""

        def __init__(self, stream: str) -> None:
            Reader.__init__(self, stream)
            Scanner.__init__(self)
            Parser.__init__(self)
            Composer.__init__(self)
            BaseResolver.__init__(self)


class TreeError(Exception):
    """The text is not a document; carries the diagnostic."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


class Document(Struct, frozen=True):
    """A parsed file: its plain value, and the nodes that know where each part stands."""

    file: str
    text: str
    value: object
    root: yaml.Node | None

    def locate(self, path: Path, *, key: bool = False) -> Location:
        """The place of the value at this path, or of its key; the nearest ancestor when the path does not exist."""
        node = self.root
        at = node
        for depth, step in enumerate(path):
            found = _child(node, step)
            if found is None:
                break
            at = found[0] if key and depth == len(path) - 1 else found[1]
            node = found[1]
        return self.place(at)

    def place(self, node: yaml.Node | None) -> Location:
        """The place of a node."""
        if node is None:
            return Location(self.file)
        return Location(self.file, node.start_mark.line + 1, node.start_mark.column + 1)


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((k, v) for k, v in node.value if isinstance(k, yaml.ScalarNode) and k.value == str(step)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def parse_tree(text: str, file: str) -> Document:
    """The document's plain value with positions. Raises: TreeError with the diagnostic of the first problem."""
    if len(text) > MAX_BYTES:
        raise TreeError(problem("SF008", path=file, file=file, cause=f"more than {MAX_BYTES >> 20} MiB"))
    try:
        root = yaml.compose(text, Loader=_Loader)  # type: ignore[arg-type]
    except yaml.YAMLError as error:
        raise TreeError(_syntax(error, file)) from None
    except RecursionError:
        raise TreeError(problem("SF008", path=file, file=file, cause="nested too deeply")) from None
    document = Document(file, text, None, root)
    builder = _Builder(document)
    return Document(file, text, None if root is None else builder.build(root, 0), root)


def _syntax(error: yaml.YAMLError, file: str) -> Diagnostic:
    mark = getattr(error, "problem_mark", None)
    where = Location(file) if mark is None else Location(file, mark.line + 1, mark.column + 1)
    cause = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    return problem("SF003", path=file, where=where, file=file, cause=cause)


class _Builder:
    """Turns nodes into plain values; shared (aliased) nodes are counted each time they are used."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def build(self, node: yaml.Node, depth: int) -> object:
        self.count += 1
        if depth > MAX_DEPTH or self.count > MAX_NODES:
            cause = f"more than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"more than {MAX_NODES} values"
            raise self.refuse("SF008", node, file=self.document.file, cause=cause)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if node.tag not in _PLAIN_TAGS:
            raise self.refuse("SF003", node, file=self.document.file, cause=f"the tag {node.tag} is not supported")
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, depth + 1) for item in node.value]
        return self.mapping(node, depth)

    def mapping(self, node: yaml.Node, depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if key in result:
                raise self.refuse("SF006", key_node, key=key, first=lines[key])
            lines[key] = key_node.start_mark.line + 1
            result[key] = self.build(value_node, depth + 1)
        return result

    def key(self, node: yaml.Node) -> str:
        value = self.scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(value, str):
            cause = "a key must be text; put it in quotes" if isinstance(node, yaml.ScalarNode) else "a key must be text"
            raise self.refuse("SF003", node, file=self.document.file, cause=cause)
        if value == "<<" and isinstance(node, yaml.ScalarNode) and not node.style:
            raise self.refuse("SF003", node, file=self.document.file, cause="merge keys (<<) are not supported")
        return value

    def scalar(self, node: yaml.ScalarNode) -> object:
        text = node.value
        if node.tag and node.tag != BaseResolver.DEFAULT_SCALAR_TAG and node.tag != "!":
            raise self.refuse("SF003", node, file=self.document.file, cause=f"the tag {node.tag} is not supported")
        if node.style or node.tag == "!":
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        return self.number(node, text) if text[0] in _NUMBER_START else text

    def number(self, node: yaml.Node, text: str) -> object:
        if _INT.fullmatch(text):
            value = int(text, 0) if text[:2] in ("0x", "0o") else int(text) if len(text) < 30 else MAX_UNSIGNED + 1
            if not -(2**63) <= value <= MAX_UNSIGNED:
                raise self.refuse("SF003", node, file=self.document.file, cause="a whole number of more than 64 bits; put it in quotes")
            return value
        if _FLOAT.fullmatch(text):
            return self.fraction(node, text)
        special = _SPECIAL_FLOAT.fullmatch(text)
        if special is None:
            return text
        return float("nan") if special.group(3) else float(f"{special.group(1)}inf")

    def fraction(self, node: yaml.Node, text: str) -> object:
        """A number with a point or an exponent; its digits are kept."""
        try:
            return Decimal(text) if len(text) < MAX_DIGITS else text
        except InvalidOperation:
            raise self.refuse("SF003", node, file=self.document.file, cause="a number whose exponent is out of range") from None

    def refuse(self, code: str, node: yaml.Node, **facts: Any) -> TreeError:
        where = self.document.place(node)
        return TreeError(problem(code, path=self.document.file, where=where, **facts))
