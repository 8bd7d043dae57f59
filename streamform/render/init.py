"""What init wrote, and what to do next."""

from __future__ import annotations

import shlex


def render_init(folder: str, written: list[str]) -> str:
    """The files, and the first commands."""
    lines = [f"wrote {folder}:", *(f"  {path}" for path in written), ""]
    lines += ["next:", f"  cd {shlex.quote(folder)}", "  streamform check", "  streamform test", "  streamform apply --target local"]
    if "definitions.py" in written:
        lines.append("  dagster dev -f definitions.py")
    return "\n".join(lines) + "\n"
