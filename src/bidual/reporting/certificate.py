"""Certificates in words, and pages of certificates alone."""

import math
from dataclasses import dataclass

from bidual.architectures.modules import RebuildableModule
from bidual.estimators.certifying import NetworkCertificate
from bidual.problems.certificate import Certificate, Scope
from bidual.reporting.elements import Html, badge, escaped, facts, inline, joined, number, paragraph, percent, tiles
from bidual.reporting.page import Report, Section, assemble

_SCOPES = {
    Scope.ALL_PATTERNS: "the network itself over all activation patterns, of any width and with any weights",
    Scope.BLOCKS: "all networks with the activation patterns (gates) that were drawn or given; others may do better",
}


@dataclass(frozen=True)
class Bounds:
    """What a certificate says, wherever it comes from; ``rivals`` are the networks it speaks of, if that is known."""

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


def reach(gap: float) -> str:
    """How good a point with this gap is, in words."""
    if not math.isfinite(gap):
        return "nothing is proved about it"
    if gap == 0:
        return "it is the best there is, up to rounding"
    return f"no network in scope improves on it by more than {percent(gap)}"


def objective(value: float) -> str:
    """An objective or a bound of one, with digits enough to tell the two apart."""
    return number(float(value), 9)


def gap_words(gap: float) -> str:
    """A gap as a short text."""
    return f"{gap:.1e}" if gap < 1e-2 else percent(gap)


def certificate_body(bounds: Bounds, tol: float | None) -> Html:
    """The numbers, each with what it means, and what they do not say."""
    pairs = {
        "primal": _meaning(
            objective(bounds.primal),
            "The training objective of this network: the sum of losses over the training samples, plus `beta` times "
            "the price of its weights. The best possible value cannot be larger.",
        ),
        "dual": _meaning(
            objective(bounds.dual),
            "A proved lower bound: no network in scope has a smaller objective. Its witness, the dual point, is kept "
            "with the model, and the bound can be computed again from it without trust in the solver.",
        ),
        "relative gap": _meaning(
            number(bounds.relative_gap, 3),
            "(primal − dual) / primal, computed in float64 at the network that is returned: "
            f"{reach(bounds.relative_gap)}.",
        ),
        "scope": inline(f"**{bounds.scope.name}**: the bound holds for {bounds.rivals or _SCOPES[bounds.scope]}."),
    }
    limits = "It is a statement about training. How well the network predicts new samples is another question."
    return joined([_verdict(bounds.relative_gap, tol), facts(pairs), paragraph(limits, "soft")])


def _meaning(shown: str, text: str) -> Html:
    return Html(f"<strong>{shown}</strong><br>{inline(text)}")


def _verdict(gap: float, tol: float | None) -> Html:
    if tol is None:
        return Html("")
    good = gap <= tol
    words = "certified within the tolerance" if good else "the gap is above the tolerance"
    return Html(f"<p>{badge(words, good)} {inline(f'asked for {tol:.0e}, reached {gap:.2e}')}</p>")


def certificate_report(certificate: Certificate, title: str | None) -> Report:
    """The page of a certificate alone."""
    bounds = Bounds.of(certificate)
    shape = " × ".join(map(str, certificate.point.shape))
    summary = joined(
        [
            paragraph(
                f"A point of a convex training problem with objective {objective(bounds.primal)} is certified by a "
                f"lower bound of {objective(bounds.dual)}: {reach(bounds.relative_gap)}."
            ),
            tiles({"relative gap": gap_words(bounds.relative_gap), "scope": bounds.scope.name}),
        ]
    )
    more = facts(
        {
            "point": f"{shape} numbers (blocks × rows × columns)",
            "dual point": " × ".join(map(str, certificate.dual_point.shape)) + " numbers (samples × outputs)",
            "polar": f"{number(certificate.polar, 6)}: an upper bound of the dual constraint at the dual point",
        }
    )
    body = joined([certificate_body(bounds, None), more])
    return assemble(
        title or "Certificate",
        "How far a point is from the optimum",
        [Section("Summary", summary), Section("Certificate", body)],
    )


@dataclass(frozen=True)
class Judged:
    """What is known of a network that was certified from outside."""

    objective: float
    lower_bound: float
    relative_gap: float
    better_objective: float
    status: str

    @classmethod
    def of(cls, found: NetworkCertificate) -> "Judged":
        return cls(found.objective, found.lower_bound, found.relative_gap, found.better_objective, found.status)


def judged_report(found: Judged, context: dict[str, object], title: str | None) -> Report:
    """The page of a network that anybody trained."""
    gain = found.objective - found.better_objective
    better = math.isfinite(gain) and gain > 1e-12 * abs(found.objective)
    summary = joined(
        [
            paragraph(
                f"The given network has objective {objective(found.objective)}. No two-layer ReLU network, of any "
                f"width and however it is trained, has an objective below {objective(found.lower_bound)}: "
                f"{reach(found.relative_gap)}."
            ),
            paragraph(_better(found, better)),
            tiles(
                {
                    "relative gap": gap_words(found.relative_gap),
                    "objective": objective(found.objective),
                    "lower bound": objective(found.lower_bound),
                }
            ),
        ]
    )
    pairs = {
        "objective": _meaning(
            objective(found.objective),
            "Of the network as it is: the sum of losses plus `beta/2` times the sum of squares of its weights.",
        ),
        "lower bound": _meaning(
            objective(found.lower_bound), "Proved for every network of its kind and any width (scope ALL_PATTERNS)."
        ),
        "relative gap": _meaning(
            number(found.relative_gap, 3), f"(objective − lower bound) / objective: {reach(found.relative_gap)}."
        ),
        "best network found": _meaning(
            objective(found.better_objective), "The smallest objective that was met on the way."
        ),
        "search": escaped(found.status),
    }
    sections = [Section("Summary", summary), Section("Certificate", facts(pairs))]
    if context:
        sections.append(Section("Problem", facts(context)))
    return assemble(
        title or "Certificate of a network", "How much better any other network of its kind could be", sections
    )


def _better(found: Judged, better: bool) -> str:
    if better:
        return f"A better one was found on the way, with objective {objective(found.better_objective)}."
    return "No better one was found on the way."
