"""Replays recorded cases of the reference implementation and compares what differs with docs/deviations.md.

    python -m tests.tools.replay_recorded FOLDER

Fails on a difference that the page does not list, and on a listed one that is none any more.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DEVIATIONS = REPOSITORY / "docs" / "deviations.md"
_LISTED = re.compile(r"^\| `([a-z0-9_]+)` \|", re.MULTILINE)
_FAILED = re.compile(r"^FAILED (\S+) ", re.MULTILINE)
MOST = 1_000
"""Failures that the replay may print."""


def main(folder: Path) -> int:
    """Run every case with the `streamform` beside this interpreter."""
    command = Path(sys.executable).with_name("streamform")
    replay = [sys.executable, str(folder / "replay.py"), "--cmd", str(command), "--strict-digests", "--list", str(MOST)]
    done = subprocess.run(replay, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    if done.returncode not in (0, 1) or " steps" not in done.stdout:
        sys.stderr.write(done.stderr)
        return 2
    failed, listed = set(_FAILED.findall(done.stdout)), set(_LISTED.findall(DEVIATIONS.read_text("utf-8")))
    for name in sorted(failed - listed):
        print(f"{name} differs from its recording and docs/deviations.md does not list it")
    for name in sorted(listed - failed):
        print(f"{name} is listed in docs/deviations.md and does not differ")
    return 1 if failed != listed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
