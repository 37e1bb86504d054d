"""Pages of certificates."""

import math
from dataclasses import dataclass
from typing import Any

from bidual.architectures.modules import RebuildableModule
from bidual.problems.certificate import Certificate, Scope
from bidual.reporting.page import Report, page

_SCOPES = {
    Scope.ALL_PATTERNS: "the network itself over all activation patterns, of any width and with any weights",
    Scope.BLOCKS: "all networks with the activation patterns (gates) that were drawn or given; others may do better",
}


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
    context = {"bounds": Bounds.of(certificate), "certificate": certificate}
    return page("certificate", title or "Certificate", "How far a point is from the optimum", **context)


def judged_report(found: Any, problem: dict[str, Any], title: str | None) -> Report:
    """The page of a network that was trained elsewhere, with the fields of a :class:`bidual.NetworkCertificate`."""
    gain = found.objective - found.better_objective
    better = math.isfinite(gain) and gain > 1e-12 * abs(found.objective)
    lead = "How much better any other network of its kind could be"
    return page("network", title or "Certificate of a network", lead, found=found, better=better, problem=problem)
