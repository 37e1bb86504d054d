"""Fewer neurons, the same predictions, no higher price: Caratheodory's theorem for networks (CP Theorem 1)."""

import torch
from jaxtyping import Float
from torch import Tensor

Network = tuple[Float[Tensor, "m d"], Float[Tensor, "m c"]]

_SAME = 1e-14  # directions that differ by less are one direction
_EPS = torch.finfo(torch.float64).eps


def prune(
    X: Float[Tensor, "n d"], neurons: Float[Tensor, "m d"], weights: Float[Tensor, "m c"], *, intercept: bool = False
) -> Network:
    r"""Neurons u_j and weights w_j, at most n c of them, with the predictions sum_j (X u_j)_+ w_j^T of the given ones
    and no higher price sum_j |u_j| |w_j|.

    CP Theorem 1 has n c + 1. While the predictions of the neurons, scaled to price one, are linearly dependent, moving
    along the dependence in the direction in which the price does not rise ends at a neuron of price zero. So at most
    rank(predictions of the neurons) <= rank of the features (X u_j)_+ times c <= n c are left. With ``intercept``
    predictions may change by a constant per output, which a free intercept takes up, and at most (n - 1) c are left.
    """
    _check(X, neurons, weights)
    X, U, W = (T.detach().to("cpu", torch.float64) for T in (X, neurons, weights))
    U, W = _alive(X, *merge(U, W, _SAME))
    if not len(U):
        return neurons[:0], weights[:0]
    mass, features = price(U, W), _features(X, U, intercept)
    kept_mass = caratheodory(_rank_one_columns(features, U, W), mass)
    kept = kept_mass > 0
    return U[kept].to(neurons), (W * (kept_mass / mass)[:, None])[kept].to(weights)


def price(neurons: Float[Tensor, "m d"], weights: Float[Tensor, "m c"]) -> Float[Tensor, " m"]:
    """|u_j| |w_j|, the weight decay of the balanced neuron."""
    return torch.linalg.vector_norm(neurons, dim=1) * torch.linalg.vector_norm(weights, dim=1)


def merge(neurons: Float[Tensor, "m d"], weights: Float[Tensor, "m c"], tol: float) -> Network:
    r"""One neuron of unit length for all whose directions differ by at most ``tol``: their mean direction, with the sum
    of |u_j| w_j, whose price is no higher by the triangle inequality. Neurons of price zero are dropped.
    """
    order = price(neurons, weights).argsort(descending=True, stable=True)
    order = order[price(neurons, weights)[order] > 0]
    if not len(order):
        return neurons[order], weights[order]
    length = torch.linalg.vector_norm(neurons[order], dim=1, keepdim=True)
    unit, scaled = neurons[order] / length, length * weights[order]
    label = _first_within(unit, tol)
    leaders, label = label.unique(return_inverse=True)
    mass = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    direction = unit.new_zeros(len(leaders), unit.shape[1]).index_add_(0, label, mass * unit)
    alone = label.bincount(minlength=len(leaders)) == 1
    direction[alone] = unit[leaders[alone]]
    direction = direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    return direction, scaled.new_zeros(len(leaders), scaled.shape[1]).index_add_(0, label, scaled)


def caratheodory(columns: Float[Tensor, "k m"], mass: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    r"""Masses >= 0 with the same sum of mass_j column_j, no larger in total, on linearly independent columns.

    Columns are taken in portions, so that never more than about twice the rank are looked at together.
    """
    result, width = torch.zeros_like(mass), min(columns.shape) + max(64, min(columns.shape))
    used, rest = mass.new_zeros(0, dtype=torch.long), torch.arange(len(mass), device=mass.device)
    while len(rest):
        taken, rest = rest[: width - len(used)], rest[width - len(used) :]
        used = torch.cat([used, taken])
        part = _reduce(columns[:, used], torch.cat([result[used[: -len(taken)]], mass[taken]]))
        result[used] = part
        used = used[part > 0]
    return _refined(columns, result, mass)


def _check(X: Tensor, neurons: Tensor, weights: Tensor) -> None:
    if neurons.shape[1] != X.shape[1]:
        raise ValueError(f"neurons must have one column per feature ({X.shape[1]}), got {neurons.shape[1]}.")
    if len(neurons) != len(weights):
        raise ValueError(f"weights must have one row per neuron ({len(neurons)}), got {len(weights)}.")
    if not all(bool(torch.isfinite(T).all()) for T in (X, neurons, weights)):
        raise ValueError("X, neurons and weights must be finite, got NaN or infinity.")


def _first_within(unit: Tensor, tol: float, portion: int = 1024) -> Tensor:
    """For every row the first row that is at most ``tol`` away, or what that one points to."""
    exact = "donot_use_mm_for_euclid_dist"
    near = ((torch.cdist(rows, unit, compute_mode=exact) <= tol).int() for rows in unit.split(portion))
    label = torch.cat([part.argmax(1) for part in near])
    while bool((label[label] != label).any()):
        label = label[label]
    return label


def _alive(X: Tensor, U: Tensor, W: Tensor) -> Network:
    """Without the neurons that are off on every sample or have no price left."""
    on = (X @ U.T > 0).any(0) & (price(U, W) > 0)
    return U[on], W[on]


def _features(X: Tensor, U: Tensor, intercept: bool) -> Tensor:
    """(X u_j)_+ as columns, in fewer rows if there are fewer columns; without their mean if that is free."""
    H = (X @ U.T).clamp(min=0)
    H = H - H.mean(0) if intercept else H
    return torch.linalg.qr(H, mode="r").R if len(H) > H.shape[1] else H


def _rank_one_columns(features: Tensor, U: Tensor, W: Tensor) -> Tensor:
    """(X u_j)_+ w_j^T / (|u_j| |w_j|), flattened, as columns."""
    return (features[:, None, :] * (W / price(U, W)[:, None]).T[None]).flatten(0, 1)


def _reduce(columns: Tensor, mass: Tensor) -> Tensor:
    """Masses on independent columns: one null direction after the other is walked until a mass vanishes.

    The rest of the null space is kept orthonormal and turned away from that mass by a Householder reflection.
    """
    null, mass = _null_space(columns), mass.clone()
    for _ in range(null.shape[1]):
        direction = _downhill(null)
        falling = direction < 0
        steps = torch.where(falling, mass / -torch.where(falling, direction, -1.0), torch.inf)
        hit = int(steps.argmin())
        mass = (mass + steps[hit] * direction).clamp(min=0)
        mass[hit] = 0
        null = _without_coordinate(null, hit)
    return mass


def _null_space(columns: Tensor) -> Tensor:
    """An orthonormal basis, as columns, of what the columns map to zero up to rounding."""
    _, values, right = torch.linalg.svd(columns, full_matrices=True)
    tolerance = max(columns.shape) * _EPS * float(values.max()) if len(values) else 0.0
    return right[int((values > tolerance).sum()) :].T


def _downhill(null: Tensor) -> Tensor:
    """The null direction along which the total mass falls fastest; any one along which it does not rise if none."""
    slope = null.sum(0)
    if float(torch.linalg.vector_norm(slope)) > 1e-9:
        return -(null @ (slope / torch.linalg.vector_norm(slope)))
    return null[:, 0] * (-1.0 if float(slope[0]) > 0 else 1.0)


def _without_coordinate(null: Tensor, coordinate: int) -> Tensor:
    """An orthonormal basis of the null vectors that are zero at a coordinate: one dimension less."""
    row = null[coordinate].clone()
    row[0] += torch.copysign(torch.linalg.vector_norm(row), row[0])
    size = float(row @ row)
    if size > 0:
        null = null - (null @ row)[:, None] * (2 / size * row)
    null = null[:, 1:].clone()
    null[coordinate] = 0
    return null


def _refined(columns: Tensor, mass: Tensor, before: Tensor) -> Tensor:
    """One least-squares correction of what rounding has moved away from the sum ``before``, if it is one."""
    used, target, better = mass > 0, columns @ before, mass.clone()
    error = target - columns @ mass
    better[used] += torch.linalg.lstsq(columns[:, used], error[:, None], driver="gelsd").solution[:, 0]
    closer = float(torch.linalg.vector_norm(target - columns @ better)) < float(torch.linalg.vector_norm(error))
    allowed = bool((better >= 0).all()) and float(better.sum()) <= float(before.sum()) * (1 + 4 * _EPS)
    return better if closer and allowed else mass
