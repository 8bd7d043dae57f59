"""How long the example's code location takes to load, as a ratio to a bare `import dagster`.

    python tests/bench/dagster_location.py

Both are whole processes, best of several, taken in turns. Loading is what a code server does: import definitions.py and
resolve its repository. `cold` compiles the project anew, `warm` finds it in the compile cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
BUDGET = 1.5

BARE = "import dagster"
LOCATION = "import definitions; definitions.defs.get_repository_def()"


def seconds(code: str, folder: Path, environment: dict[str, str]) -> float:
    """Wall time of one process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True)
    return time.perf_counter() - started


def measure() -> dict[str, float]:
    """Best times of each kind, in seconds."""
    from streamform import api

    with tempfile.TemporaryDirectory() as scratch:
        shop = Path(scratch) / "shop"
        api.init(shop, dagster=True)
        warm = {**os.environ, "STREAMFORM_CACHE_DIR": str(Path(scratch) / "cache")}
        cold = {**os.environ, "STREAMFORM_CACHE_DIR": ""}
        seconds(LOCATION, shop, warm)
        kinds = {"bare": (BARE, warm), "warm": (LOCATION, warm), "cold": (LOCATION, cold)}
        rounds = [{name: seconds(code, shop, env) for name, (code, env) in kinds.items()} for _ in range(ROUNDS)]
    return {name: min(times[name] for times in rounds) for name in kinds}


def main() -> int:
    """Print the ratios; 1 when a warm load is over the budget."""
    best = measure()
    ratio = {name: best[name] / best["bare"] for name in ("warm", "cold")}
    print(f"import dagster {best['bare']:.2f} s")
    print(f"dagster location of the example, warm: {best['warm']:.2f} s, ratio {ratio['warm']:.2f} (budget {BUDGET})")
    print(f"dagster location of the example, cold: {best['cold']:.2f} s, ratio {ratio['cold']:.2f}")
    return 0 if ratio["warm"] <= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
