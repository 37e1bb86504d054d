"""Run a benchmark with processor time in place of seconds, on a machine that others keep busy.

    OMP_NUM_THREADS=1 python benchmarks/processor_clock.py benchmarks/relu_gaps.py --ranks 8

Limits of time are in processor time then, too. It is the time of all threads together, so one thread should run.
"""

import runpy
import sys
import time
from pathlib import Path


def main() -> None:
    script = sys.argv[1]
    time.perf_counter = time.process_time
    sys.path.insert(0, str(Path(script).parent))
    sys.argv = sys.argv[1:]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
