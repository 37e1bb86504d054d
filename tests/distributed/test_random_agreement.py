"""Two ranks against one process on random problems: solvers, losses, weights, intercepts and gauges."""

import json

import pytest

from helpers.launching import torchrun
from helpers.places import HELPERS

# Where steps are chosen by a line search or an extrapolation, rounding moves the end within what the gap allows: a gap
# of 1e-13 bounds predictions by its root.
LOOSE = {"active_neurons": 1e-6, "kernel_admm": 1e-5}


@pytest.mark.slow
def test_two_ranks_and_one_process_agree(tmp_path):
    out, script = tmp_path / "found.json", HELPERS / "random_agreement.py"
    with torchrun(2, script, out, *range(36)) as run:
        _, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    found = json.loads(out.read_text())
    assert len({tuple(each["case"][:2]) for each in found}) >= 25
    for each in found:
        case = each["case"]
        assert each["sound"], case
        assert each["holds"], case
        assert each["magnitude"], case
        assert max(each["primal"], each["beta_max"]) <= 1e-10, case
        assert each["predictions"] <= LOOSE.get(case[0], 1e-8), case
