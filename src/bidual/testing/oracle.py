"""What every oracle of the steepest neuron promises."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf, isfinite

import torch
from torch import Tensor

from bidual.gauges import Bracket
from bidual.polar import NeuronOracle, SteepestNeurons
from bidual.testing.steep_neurons import Features, Question, planted_questions, random_questions, relu_features
from bidual.testing.tools import normal, require, require_at_least, require_close, require_refused

Make = Callable[[Tensor], NeuronOracle]
_FACTORS = (2.0**-40, 2.0**300)


def check_oracle(
    make: Make,
    generator: torch.Generator,
    *,
    features: Features = relu_features,
    size: int = 1,
    feasible: Callable[[Tensor], Tensor] = lambda U: U,
    outputs: Iterable[int] = (1, 3),
    width: float = inf,
) -> None:
    """Brackets contain what enumeration, closed forms and long searches find, however the question is put.

    Args:
        make: the oracle for samples X.
        generator: draws the data.
        features: what neurons (q, size d) compute of X, where it is not (X u)_+.
        size: numbers of a neuron per feature.
        feasible: drops from neurons what a neuron may not have, such as units beyond a width.
        outputs: columns of V.
        width: what the oracle promises for (upper - lower) / lower.
    """
    oracle = make(torch.ones(2, 2, dtype=torch.float64))
    norms = oracle.hidden_norm.order, oracle.output_norm.dual.order
    like = Question(oracle.X, oracle.X, *norms, features, size, feasible)
    for c in outputs:
        first, *rest = random_questions(like, generator, c)
        _check_answers(make, first, width, generator)
        _check_invariance(make, first, generator)
        for question in rest:
            _answer(make(question.X), question, f"samples of shape {tuple(question.X.shape)}", width)
        for name, question, known in planted_questions(like, generator, c) if features is relu_features else ():
            bracket = _answer(make(question.X), question, name, width).bracket
            _check_contains(bracket, known, f"the planted neuron of {name}")
    _check_refusals(make, min(outputs), generator)


def _check_answers(make: Make, question: Question, width: float, generator: torch.Generator) -> None:
    """One oracle for several questions: no answer depends on those before it, and arguments stay as they were."""
    X, V = question.X.clone(), question.V.clone()
    oracle = make(question.X)
    first = _answer(oracle, question, "the first question", width)
    other = replace(question, V=normal(V.shape, generator))
    _answer(oracle, other, "another question", width)
    _answer(oracle, question, "the first question again", width)
    _check_threshold(oracle, question, first)
    require(torch.equal(X, question.X) and torch.equal(V, question.V), "oracle: X and V stay as they were")
    if oracle.readout is None:
        require(oracle.is_for(X) and not oracle.is_for(X + 1), "oracle: is_for tells its samples from others")


def _answer(oracle: NeuronOracle, question: Question, where: str, width: float = inf) -> SteepestNeurons:
    """An answer to a question, checked against values that are computed from the question alone."""
    found = oracle.steepest(question.V)
    lower, upper = found.bracket.lower, found.bracket.upper
    name = f"oracle, {where}"
    require(0 <= lower <= upper, f"{name}: lower <= upper, got [{lower}, {upper}]")
    require(oracle.proves or upper == inf or hasattr(oracle, "euclidean"), f"{name}: a search proves nothing")
    _check_neurons(found, question, name)
    require_close(lower, float(found.values[0]) if len(found.values) else 0.0, f"{name}: lower is attained", 1e-12)
    _check_contains(found.bracket, question.best, where, question.enumerable)
    if isfinite(width):
        require_at_least(lower * (1 + width), upper, f"{name}: the bracket is as narrow as promised", 1e-12)
    return found


def _check_neurons(found: SteepestNeurons, question: Question, name: str) -> None:
    shape = (len(found.values), question.X.shape[1] * question.size)
    require(found.neurons.shape == shape, f"{name}: one row a neuron")
    lengths = torch.linalg.vector_norm(found.neurons, question.hidden, dim=1)
    require_close(lengths, torch.ones_like(lengths), f"{name}: neurons are units", 1e-9)
    scale, values = 1 / max(question.best, 1e-300), question.values(found.neurons)
    require_close(scale * found.values, scale * values, f"{name}: values are the neurons'", 1e-9)
    require(bool((found.values.diff() <= 0).all()), f"{name}: best first")


def _check_contains(found: Bracket, best: float, what: str, sure: bool = True) -> None:
    """``best`` is attained, up to its own rounding; ``sure`` says that nothing is steeper."""
    require(found.upper >= best * (1 - 1e-12), f"oracle: upper of {found} is at least the {best} of {what}")
    require(not sure or found.lower <= best * (1 + 1e-7), f"oracle: lower of {found} is at most the {best} of {what}")


def _check_threshold(oracle: NeuronOracle, question: Question, first: SteepestNeurons) -> None:
    """``above`` and ``seeds`` change what is listed and how wide the bracket is, never what is true."""
    lower = first.bracket.lower
    for share in (0.5, 0.999, 2.0):
        found = oracle.steepest(question.V, above=share * lower, seeds=first.neurons[:1])
        _check_contains(found.bracket, question.best, "a threshold", question.enumerable)
        _check_neurons(found, question, f"oracle, above {share} of the best")
        least = min(share * lower, found.bracket.lower * (1 - 1e-9))
        require(bool((found.values >= least).all()), "oracle: listed neurons exceed the threshold, or are the best")
        require(bool(len(found.values)) or share > 1 or not lower, "oracle: neurons above the threshold are listed")
        widest = max(share * lower, first.bracket.upper)
        if share > 1 and first.bracket.upper <= 1.01 * lower:
            require_at_least(widest, found.bracket.upper, "oracle: above is all a bracket may widen to", 1e-9)


def _check_invariance(make: Make, question: Question, generator: torch.Generator) -> None:
    for name, other in _equivalent(question, generator):
        _check_contains(make(other.X).steepest(other.V).bracket, question.best, name, question.enumerable)
    plain = make(question.X).steepest(question.V)
    for factor in _FACTORS:
        for name in ("V", "X"):
            other = replace(question, **{name: factor * getattr(question, name)})
            found = make(other.X).steepest(other.V)
            same = [factor * end for end in (plain.bracket.lower, plain.bracket.upper)]
            got = [found.bracket.lower, found.bracket.upper]
            require(same == got, f"oracle: {factor} times {name} gives {factor} times the bracket, {same}, got {got}")
            require(torch.equal(found.neurons, plain.neurons), f"oracle: {factor} times {name} keeps the neurons")


def _equivalent(question: Question, generator: torch.Generator) -> Iterator[tuple[str, Question]]:
    """Other questions with the same answer."""
    X, V, n = question.X, question.V, len(question.X)
    order = torch.randperm(n, generator=generator)
    yield "permuted rows", replace(question, X=X[order], V=V[order])
    yield "zero rows", replace(question, X=torch.cat([X, 0 * X[:2]]), V=torch.cat([V, V[:2]]))
    yield (
        "rows without weight",
        replace(question, X=torch.cat([X, normal(X[:2].shape, generator)]), V=torch.cat([V, 0 * V[:2]])),
    )
    yield "rows twice, V split", replace(question, X=torch.cat([X, X]), V=torch.cat([0.25 * V, 0.75 * V]))
    yield "a row twice as long", replace(question, X=torch.cat([2 * X[:1], X[1:]]), V=torch.cat([0.5 * V[:1], V[1:]]))
    yield "-V", replace(question, V=-V)
    yield "turned features", replace(question, X=X @ _turn(X.shape[1], question.hidden == 2, generator))
    yield "turned outputs", replace(question, V=V @ _turn(V.shape[1], question.output == 2, generator))
    yield "features of zeros", replace(question, X=torch.cat([X, 0 * X[:, :1]], 1))
    if V.shape[1] > 1:
        yield "an output of zeros", replace(question, V=torch.cat([V, 0 * V[:, :1]], 1))


def _turn(k: int, euclidean: bool, generator: torch.Generator) -> Tensor:
    """An orthogonal matrix; one of signs and a permutation for norms that only those leave alone."""
    if euclidean:
        return torch.linalg.qr(normal((k, k), generator)).Q
    signs = torch.where(normal((k,), generator) > 0, 1.0, -1.0).double()
    return torch.diag(signs)[torch.randperm(k, generator=generator)]


def _check_refusals(make: Make, c: int, generator: torch.Generator) -> None:
    X = normal((4, 2), generator)
    oracle = make(X)
    require_refused("oracle: V of another length", lambda: oracle.steepest(normal((5, c), generator)))
    nothing = oracle.steepest(torch.zeros(4, c, dtype=torch.float64)).bracket
    require(nothing.lower == 0 and nothing.upper < 1e-300, f"oracle: V = 0 gives [0, 0], got {nothing}")
    for bad in (torch.nan, torch.inf):
        V = normal((4, c), generator)
        V[1, 0] = bad
        require(not isfinite(oracle.steepest(V).bracket.upper), f"oracle: V with {bad} proves nothing")
