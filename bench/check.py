"""How long does `tpuagent check` take on this machine, of itself and of an image? Runs here, without a guest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.image.trees import install

HERE = Path(__file__).parent
ROUNDS = 7
LIMIT_S = 1.0
_LAST_CODE = 2  # whatever the check finds, it came to its end


def measure(*arguments: str) -> list[float]:
    """Seconds of each round, from the start of the interpreter to its end."""
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        argv = [sys.executable, "-I", "-c", _PROGRAM, str(HERE.parent), "check", "--json", *arguments]
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)
        if done.returncode not in range(_LAST_CODE + 1):
            raise RuntimeError(f"the check ended with {done.returncode}")
        taken.append(time.perf_counter() - began)
    return taken


# As the installed command starts, with the code of this folder.
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from tpuagent.cli import main; sys.exit(main(sys.argv[1:]))"
)


def main() -> int:
    """Print the figures; 1 when the promise is broken. The best round is the one that others disturbed least."""
    kept = True
    with tempfile.TemporaryDirectory() as image:
        install(image)
        for what, arguments in (("check", ()), ("check --image", ("--image", image))):
            taken = measure(*arguments)
            verdict = "kept" if min(taken) <= LIMIT_S else "BROKEN"
            kept = kept and verdict == "kept"
            print(f"tpuagent {what}: {min(taken):.2f} s (to {max(taken):.2f}), limit {LIMIT_S:g}: {verdict}")
    return not kept


if __name__ == "__main__":
    sys.exit(main())
