"""The lower bound of a given network's objective, and the search for a better one."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from numpy.typing import ArrayLike

from bidual.estimators.base import ConvexEstimator
from bidual.estimators.certifying.decay import Penalty, Scaling
from bidual.estimators.certifying.given import GivenNetwork, Question
from bidual.estimators.certifying.reading import Network, judged_network, restored
from bidual.estimators.certifying.result import NetworkCertificate
from bidual.estimators.certifying.targets import Targets, weighted
from bidual.estimators.class_weights import ClassWeight, check_class_weight
from bidual.estimators.parameters import COUNT, FRACTION, SECONDS, as_count, one_of
from bidual.losses import Loss, resolve_loss
from bidual.numerics.norms import L2
from bidual.problems.certificate import Certificate, Scope, SoundnessError, judge, polar_bound, proved_by
from bidual.problems.problem import NeuronProblem
from bidual.problems.solution import Limits, Solution
from bidual.runtime.numerical_errors import numerical_errors_as_value_error
from bidual.training.relu.plan import ORACLES, NeuronPlan
from bidual.training.relu.start import NetworkStart


def certify(
    network: Network,
    X: ArrayLike,
    y: ArrayLike,
    beta: float | None = None,
    loss: str | Loss = "auto",
    *,
    head: Sequence[str] | None = None,
    weight_decay: float | None = None,
    reduction: str | None = None,
    optimizer: str = "sgd",
    decayed_bias: bool | str | None = None,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    tol: float = 1e-4,
    max_time: float | None = None,
    oracle: str = "auto",
    n_starts: int | str = "auto",
    proof: "Certificate | NetworkCertificate | None" = None,
) -> NetworkCertificate:
    """Bound the objective of a two-layer ReLU network from below, over all networks of its kind and any width.

    Training goes on from the network's neurons; the residual of the best network found, moved to where more can be
    proved, is the dual point. It is not trusted: what counts is the certified bound that it gives (CP eq. 11). Networks
    of this package bring the witness of their own certificate, if it has one: on the same samples, loss and beta the
    bound is no smaller than that of ``fit``, up to rounding.

    Args:
        network: a ``torch.nn.Sequential(Linear, ReLU, Linear)``, a fitted ``MLPRegressor`` or ``MLPClassifier``, an
            estimator of this package, a file (.safetensors, .onnx, .pt2), or another network of docs/certify.md, such
            as a ``Sequential(Conv2d, ReLU, AvgPool2d, Flatten, Linear)``. A layer without bias competes with networks
            without that bias.
        X: the samples it was trained on.
        y: their targets (n,) or (n, c), or labels.
        beta: the weight decay, in the scaling of a sum over samples. One that it was not trained with gives a larger
            gap, nothing worse.
        weight_decay: instead of beta, what the optimiser of torch was given; the beta that follows is in the result
            (docs/certify.md has the table).
        reduction: of the loss that torch minimised, "mean" (as None) or "sum", with all samples in one batch.
        optimizer: "sgd" or "adam", which add ``weight_decay`` times the weights to the gradient. "adamw" does not, so
            that no objective belongs to its ``weight_decay``: name the beta to judge the network at.
        decayed_bias: which biases are decayed: True, False, "hidden" or "output". By default all of them beside
            ``weight_decay``, as torch has it without parameter groups, and the hidden ones beside ``beta``.
        loss: "auto" (that of an estimator of this package, otherwise squared), "squared", "log_loss" (logistic, or
            softmax with several outputs), another name in ``bidual.losses.LOSSES``, or a Loss.
        head: the names of two linear layers of a larger torch module, such as ``("fc1", "fc2")``, with a ReLU between
            them and nothing after. The module is run on X once, in evaluation mode, and these two layers are certified
            on what the first one sees; the layers before stay as they are.
        sample_weight, class_weight: as the network was trained with, in ``fit`` and in the constructor of a classifier
            of this package; the objective is then the weighted sum of losses. They are not taken from the network.
        tol: the relative gap at which training for a better bound stops.
        max_time: a limit in seconds on that.
        oracle, n_starts: as in :class:`bidual.ConvexMLPClassifier`.
        proof: a certificate whose witness is tried too, by default that of a network of this package.
    """
    penalty = Penalty(beta, weight_decay, reduction, optimizer, decayed_bias)
    FRACTION("tol", tol)
    SECONDS("max_time", max_time)
    one_of(ORACLES)("oracle", oracle)
    COUNT("n_starts", n_starts)
    check_class_weight("class_weight", class_weight)
    known = proof.certificate if isinstance(proof, NetworkCertificate) else proof
    if not isinstance(known, Certificate | None):
        raise TypeError(f"proof must be a Certificate, such as model.certificate_, got {type(known).__name__}.")
    network = restored(network)
    given = judged_network(network, head, penalty)
    own = network.loss_ if isinstance(network, ConvexEstimator) and loss == "auto" else loss
    chosen = resolve_loss(own, given.n_outputs)
    targets = Targets.of(y, given.n_outputs, chosen, getattr(network, "classes_", None), class_weight)
    samples, datafit = weighted(given.samples(X), targets, sample_weight, chosen, given.output_bias is not None)
    scaling = penalty.scaling(chosen, targets, sample_weight)
    problem = given.problem(samples, datafit, scaling.beta)
    plan = given.plan(problem, oracle, as_count(n_starts, "auto"))
    limits = Limits(float(tol), max_time=None if max_time is None else float(max_time))
    known = getattr(network, "certificate_", None) if known is None else known
    with numerical_errors_as_value_error():
        return _certify(given, problem, plan, limits, known, scaling)


def _certify(
    given: GivenNetwork,
    problem: NeuronProblem,
    plan: NeuronPlan,
    limits: Limits,
    proof: Certificate | None,
    scaling: Scaling,
) -> NetworkCertificate:
    neurons, own = given.neurons(problem), given.objective(problem)
    start = L2.unit(neurons[neurons.any(1)])
    brought = None if proof is None else _again(problem, proof)
    prove = brought is None or _relative_gap(own.most, brought.dual) > limits.tol
    done = plan.train(problem, limits, start=NetworkStart(start), candidates=(own.gradient,), prove=prove)
    if brought is not None:
        done = replace(done, certificate=done.certificate.with_dual_of(brought))
    certificate = done.certificate
    if certificate.dual > own.most:
        raise SoundnessError(f"lower bound {certificate.dual!r} exceeds {own.most!r}; please report this network.")
    module, other = given.found(done)
    found = other.objective(problem).most
    status = _status(done, _relative_gap(found, certificate.dual), limits.tol)
    improved = found < own.least
    better, best = module if improved else None, found if improved else own.most
    own_gap = _relative_gap(own.most, certificate.dual)
    data = problem.datafit
    constant = data.upper_bound(torch.zeros_like(data.targets), 0.0)
    unit = "neuron" if module.units is None else module.units.name
    kind = f"{module.words} of any {'width' if unit == 'neuron' else f'number of {unit}s'}{given.limits}"
    how = f"{module.n_neurons} {unit}s, by training on from yours for {done.seconds:.3g} seconds"
    return NetworkCertificate(
        own.most,
        certificate.dual,
        own_gap,
        certificate,
        better,
        best,
        status,
        scaling.beta,
        scaling.unit,
        constant,
        kind,
        how,
        given.head,
        Question(given, problem, done),
        done.problem,
    )


def _status(done: Solution, gap: float, tol: float) -> str:
    """``gap`` is that of the network found; the problem of free hidden biases is below that of networks."""
    if gap <= tol:
        return f"the best network that was found is optimal up to {gap:.1e}"
    if done.certificate.within(tol):
        return f"of the best network that was found, the bound for free hidden biases leaves {gap:.1e} open"
    return f"of the best network that was found, {done.shortfall(tol)}"


def _again(problem: NeuronProblem, proof: Certificate) -> Certificate | None:
    """What the witness of a certificate proves for this problem, at the zero network; None where there is none."""
    V, witness = proof.dual_point.to(problem.X), proof.witness
    if witness is None or V.shape != problem.datafit.targets.shape:
        return None
    nothing = problem.restricted_to(problem.X.new_zeros(1, problem.neuron_size))
    polar = polar_bound(nothing, proved_by(nothing, witness))
    return judge(nothing, nothing.operator.zeros(), V, polar, Scope.ALL_PATTERNS, witness=witness)


def _relative_gap(objective: float, lower_bound: float) -> float:
    """At most one, where an objective is beyond all numbers too."""
    if not math.isfinite(objective):
        return 1.0
    return max(objective - lower_bound, 0.0) / objective if objective > 0 else 0.0
