"""How much is tried: a little in the suite, always the same; as much as asked for in a campaign."""

import os

from hypothesis import HealthCheck, Phase, settings

FACTOR = float(os.environ.get("BIDUAL_FUZZ", "0"))  # campaigns try so many times more, at random


def tried(count: int) -> settings:
    """Settings of a test with so many examples in the suite."""
    campaign = FACTOR > 0
    return settings(
        max_examples=max(round(count * FACTOR), 1) if campaign else count,
        derandomize=not campaign,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink) if campaign else (Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
