"""Where things are: the checkout, the benchmarks beside the package, scripts of tests, and data that may be absent."""

from pathlib import Path

HELPERS = Path(__file__).parent
ROOT = HELPERS.parents[1]
BENCHMARKS = ROOT / "benchmarks"
SHARED = ROOT.parent / "shared" / "data"
