"""Pages of certificates and of regularisation paths."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bidual.architectures.modules import RebuildableModule
from bidual.estimators.certifying.verdict import Comparison
from bidual.problems.certificate import Certificate, Scope
from bidual.reporting.figures import objectives_figure, path_figure, path_gaps_figure, paths_of
from bidual.reporting.page import Report, page
from bidual.reporting.plots import Drawn, both

_SCOPES = {
    Scope.ALL_PATTERNS: "the network itself over all activation patterns, of any width and with any weights",
    Scope.BLOCKS: "all networks with the activation patterns (gates) that were drawn or given; others may do better",
}

_FAR = 50  # times the objective of a network, from where that of a constant is not drawn beside it
_LARGEST = 1e100  # that an axis can show
_COLUMNS = ("seed", "beta", "fraction", "loss", "neurons", "relative_gap", "seconds")
_NAMES = {"fraction": "beta / beta_max", "loss": "train loss per sample", "relative_gap": "relative gap"}


@dataclass(frozen=True)
class Bounds:
    """The numbers of a certificate; ``rivals`` are the networks that it bounds, if they are known."""

    primal: float
    dual: float
    relative_gap: float
    scope: Scope
    rivals: str = ""

    @classmethod
    def of(cls, certificate: Certificate, module: RebuildableModule | None = None) -> "Bounds":
        exact = module is not None and (module.always_on or certificate.scope is Scope.ALL_PATTERNS)
        rivals = module.rivals if module is not None and exact else ""
        return cls(certificate.primal, certificate.dual, certificate.relative_gap, certificate.scope, rivals)

    @property
    def networks(self) -> str:
        """The networks that the bound holds for."""
        return self.rivals or _SCOPES[self.scope]


def certificate_report(certificate: Certificate, title: str | None) -> Report:
    """The page of a certificate alone."""
    lead, bounds = "How far a point is from the optimum", Bounds.of(certificate)
    return page("certificate", title or "Certificate", lead, bounds=bounds, certificate=certificate)


def judged_report(found: Any, title: str | None) -> Report:
    """The page of a network that was trained elsewhere: a :class:`bidual.NetworkCertificate`, or the JSON of one."""
    verdict = Comparison.of(found)
    return page(
        "network",
        title or "Certificate of a network",
        "How much better any other network of its kind could be",
        found=found,
        verdict=verdict,
        drawn=_objectives(verdict),
    )


def _objectives(verdict: Comparison) -> Drawn | None:
    """The numbers of a verdict on one axis; None where they cannot be drawn, as in a file that contradicts itself."""
    known = {"your network": verdict.objective} | ({"best found": verdict.best} if verdict.improved else {})
    if math.isfinite(verdict.constant) and verdict.constant <= _FAR * verdict.objective:
        known = {"constant output": verdict.constant} | known
    finite = all(0 <= value < _LARGEST for value in (*known.values(), verdict.lower_bound))
    if not finite or not verdict.lower_bound <= verdict.best <= verdict.objective or not verdict.objective:
        return None
    values = ", ".join(f"{name} {value:.5g}" for name, value in known.items())
    alt = f"Training objectives: {values}; no network is below {verdict.lower_bound:.5g}."
    return both(lambda: objectives_figure(known, verdict.best, verdict.lower_bound), alt)


def path_report(rows: Sequence[dict[str, Any]], beta_max: float, title: str | None) -> Report:
    """Loss, size and certified gap of every network along a path."""
    count, seeds = len(rows), len(paths_of(rows))
    keys = [key for key in _COLUMNS if key != "seed" or seeds > 1]
    sizes = f"Training loss per sample and number of neurons against beta, {count} networks."
    gaps = f"Certified relative gap and seconds against beta for {count} networks."
    return page(
        "path",
        title or "Report of a regularisation path",
        f"{count} certified networks, one for every weight decay",
        rows=rows,
        beta_max=beta_max,
        seeds=seeds,
        path=both(lambda: path_figure(rows), sizes),
        gaps=both(lambda: path_gaps_figure(rows), gaps),
        headers=[_NAMES.get(key, key) for key in keys],
        cells=[[row[key] for key in keys] for row in rows],
    )
