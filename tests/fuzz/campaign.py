"""A longer campaign, bounded in time: ``python campaign.py SECONDS``. It ends with code 1 if anything was found.

Half of the time is hypothesis at random over the tests of this folder, again and again; the other half is atheris on
the file readers, an equal part for each.
"""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from fuzz.targets import TARGETS

HERE = Path(__file__).parent


def examples(seconds: float) -> int:
    """Hypothesis until time is up; the first round with a finding ends it."""
    end, factor = time.monotonic() + seconds, 1
    while (left := end - time.monotonic()) > 0:
        call = [sys.executable, "-m", "pytest", str(HERE), "-n", "0", "-q", "-x", "-p", "no:cacheprovider"]
        try:
            done = subprocess.run(call, env=os.environ | {"BIDUAL_FUZZ": str(factor)}, timeout=left)
        except subprocess.TimeoutExpired:
            return 0
        if done.returncode:
            return 1
        factor = min(2 * factor, 8)
    return 0


def main(seconds: float) -> int:
    found = examples(seconds / 2)
    share = max(int(seconds / 2 / len(TARGETS)), 1)
    found |= subprocess.run([sys.executable, str(HERE / "atheris_readers.py"), str(share)]).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} s of one core; {'findings above' if found else 'nothing found'}")
    return int(found != 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
