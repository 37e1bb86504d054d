"""What problems came to, and where that is kept."""

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from soundness.cases import Bound, Issued

_COUNTS = ("problems", "certificates", "bounds", "refused", "closed", "positive", "seconds")


@dataclass
class Tally:
    """What a number of problems came to.

    Attributes:
        closed, positive: certificates with a relative gap of at most 1e-6, and with a dual that says something.
        unsound: certificates and bounds that are wrong, and claims that are false.
        dual_slack, primal_slack: the smallest shares by which certificates were right.
        bound_slack: the same of other bounds, by who claims them.
    """

    problems: int = 0
    certificates: int = 0
    bounds: int = 0
    refused: int = 0
    closed: int = 0
    positive: int = 0
    unsound: list[dict[str, Any]] = field(default_factory=list)
    crashed: list[dict[str, Any]] = field(default_factory=list)
    dual_slack: float = math.inf
    primal_slack: float = math.inf
    bound_slack: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: "Tally") -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unsound += other.unsound
        self.crashed += other.crashed
        self.counts.update(other.counts)
        self.dual_slack = min(self.dual_slack, other.dual_slack)
        self.primal_slack = min(self.primal_slack, other.primal_slack)
        for what, slack in other.bound_slack.items():
            self._note(what, slack)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"counts": dict(sorted(self.counts.items()))}

    @classmethod
    def of_json(cls, story: dict[str, Any]) -> "Tally":
        return cls(**story | {"counts": Counter(story["counts"])})

    def check(self, issued: Issued, seed: int) -> None:
        """Count a problem, and hold its certificates against all objectives that are known of it."""
        self.problems += 1
        self.refused += bool(issued.refused)
        self.counts.update(f"{name}: {value}" for name, value in issued.labels.items())
        objectives = [value for _, value in issued.certificates] + issued.attained
        least = min((value for value in objectives if np.isfinite(value)), default=np.longdouble(math.inf))
        for certificate, own in issued.certificates:
            self.certificates += 1
            self.closed += bool(certificate.relative_gap <= 1e-6)
            self.positive += bool(certificate.dual > 0)
            above, below = share(least, certificate.dual), share(np.longdouble(certificate.primal), own)
            self.dual_slack, self.primal_slack = min(self.dual_slack, above), min(self.primal_slack, below)
            if above < 0 or below < 0 or math.isnan(certificate.dual) or math.isnan(certificate.primal):
                numbers = {"dual": certificate.dual, "primal": certificate.primal, "least": float(least)}
                self.unsound.append(issued.labels | numbers | {"own": float(own), "seed": seed})
        for bound in issued.bounds:
            self._check_bound(bound, issued.labels, seed)
        self.unsound += [issued.labels | {"false": claim, "seed": seed} for claim in issued.false]

    def _check_bound(self, bound: Bound, told: dict[str, str], seed: int) -> None:
        self.bounds += 1
        slack = share(np.longdouble(bound.upper), bound.value)
        self._note(bound.what, slack)
        if slack < 0 or math.isnan(bound.upper):
            numbers = {"bound": bound.what, "upper": float(bound.upper), "value": float(bound.value), "share": slack}
            self.unsound.append(told | numbers | {"seed": seed})

    def _note(self, what: str, slack: float) -> None:
        self.bound_slack[what] = min(self.bound_slack.get(what, math.inf), slack)


def share(larger: np.longdouble, smaller: float | np.longdouble) -> float:
    """(larger - smaller) / larger: negative if it is not larger, beyond what extended precision can tell."""
    if not np.isfinite(smaller) or not np.isfinite(larger):
        return math.inf if larger >= smaller else -math.inf
    if larger == 0:
        return math.inf if smaller <= 0 else -math.inf
    if abs(larger - smaller) <= 1e-17 * abs(larger):
        return 0.0
    return float((larger - smaller) / larger)


class Kept:
    """What is done, in a file beside the report."""

    def __init__(self, path: Path) -> None:
        self.path, self.done, self.total = path, set[int](), Tally()
        if path.exists():
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # a line that was cut off is done again
                    story = json.loads(line)
                    self._take(story.pop("first"), Tally.of_json(story))

    def _take(self, first: int, tally: Tally) -> None:
        self.done.add(first)
        self.total.add(tally)

    def keep(self, first: int, tally: Tally) -> None:
        self._take(first, tally)
        with self.path.open("a") as file:
            file.write(json.dumps({"first": first} | tally.to_json()) + "\n")
