"""Writes the generated pages of docs/, or says which of them are not equal.

python -m tests.tools.write_docs            write
python -m tests.tools.write_docs --check    exit 1 when a page differs
"""

from __future__ import annotations

import sys
from pathlib import Path

from streamform.cli.documentation import cli_page
from streamform.render.tables_markdown import pages

DOCS = Path(__file__).parents[2] / "docs"


def generated() -> dict[str, str]:
    """Every generated page by its path below docs/."""
    return {**pages(), "cli.md": cli_page()}


def different() -> list[str]:
    """Pages on disk that are not what the tables say."""
    wrong = [name for name, text in generated().items() if not (DOCS / name).is_file() or (DOCS / name).read_text() != text]
    return wrong + [f"codes/{page.name}" for page in sorted((DOCS / "codes").glob("*.md")) if f"codes/{page.name}" not in generated()]


def main(arguments: list[str]) -> int:
    """Write the pages, or check them."""
    stale = different()
    if "--check" in arguments:
        sys.stderr.writelines(f"docs/{name} is not what the tables say; run `make docs`\n" for name in stale)
        return 1 if stale else 0
    (DOCS / "codes").mkdir(exist_ok=True)
    for name in stale:
        if name in generated():
            (DOCS / name).write_text(generated()[name])
        else:
            (DOCS / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
