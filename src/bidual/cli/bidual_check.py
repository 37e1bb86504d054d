#!/usr/bin/env python3
"""Checks a proof file of Bidual: python bidual_check.py PROOF [DATA]

This file trusts nothing: not the package that wrote the proof, not floating point. It needs Python alone, and imports
nothing but its standard library. docs/proof_format.md specifies the file. A proof bounds the least objective

    P(Z) = F(A Z) + beta Omega(Z),      F(p) = min_b sum_i w_i l(p_i + b, y_i)   (b = 0 without an intercept)

of a training problem from both sides. From above by the objective of one network. From below by weak duality: for
every V with Omega°(-A* V) <= beta, and 1^T V = 0 where there is an intercept,

    P(Z) >= D(V) = -F*(V) = -sum_i w_i l*(v_i / w_i).                                                       (1)

All numbers of the file are float64 and therefore integers times powers of two. Sums and products of them are computed
without any rounding, on Python's integers. Roots, logarithms, exponentials and quotients are rounded to the safe side.

Exit code: 0 if both bounds are proved, 1 if one is not, 2 if the file cannot be read.
"""

import hashlib
import json
import struct
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import compress
from math import isqrt, prod
from operator import add, mul
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

FORMAT = 1
MOST_BYTES = 64 * 2**20  # of a file
MOST_HEADER = 2**20  # bytes of its JSON
MOST_BITS = 2**31  # of all numbers of one table, written as integers with one unit
MOST_WORK = 4 * 10**9  # multiplications, about an hour
PRECISION = 192  # bits after the point of logarithms and exponentials
UNIT = Fraction(1, 2**PRECISION)
ZERO = Fraction(0)


class Refused(Exception):
    """The file is not a proof that this checker can read: exit code 2."""


class Unproved(Exception):
    """The proof does not show what it claims: exit code 1."""


def refuse(unless: bool, sentence: str) -> None:
    if not unless:
        raise Refused(sentence)


# --- Exact numbers ---------------------------------------------------------------------------------------------------


class Table(NamedTuple):
    """Exact numbers in row-major order: entry k is whole[k] * 2**unit."""

    shape: tuple[int, ...]
    whole: list[int]
    unit: int

    def rows(self, width: int) -> list[list[int]]:
        return [self.whole[k : k + width] for k in range(0, len(self.whole), width)] if width else []

    def exact(self, k: int) -> Fraction:
        return times_power(self.whole[k], self.unit)


def affordable(multiplications: int) -> None:
    refuse(multiplications <= MOST_WORK, "the problem is too large for this checker.")


def times_power(whole: int, unit: int) -> Fraction:
    """whole * 2**unit."""
    return Fraction(whole << unit) if unit >= 0 else Fraction(whole, 1 << -unit)


def dot(a: Any, b: Any) -> Any:
    return sum(map(mul, a, b))


def rounded_up(x: Fraction, unit: Fraction = UNIT) -> Fraction:
    """The least multiple of a unit that is not below x."""
    return -((-x) // unit) * unit


def root_above(x: Fraction) -> Fraction:
    """A number s >= sqrt(x), to about 190 bits: with s = r / 2^k for an integer r > sqrt(4^k x)."""
    if x == 0:
        return ZERO
    k = max(0, PRECISION - (x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    return Fraction(isqrt((x.numerator << 2 * k) // x.denominator) + 1, 1 << k)


def artanh_bounds(z: Fraction) -> tuple[Fraction, Fraction]:
    """Bounds of artanh z = z + z^3/3 + z^5/5 + ... for 0 <= z <= 1/5.

    Powers and terms are rounded down to units u, powers by at most 1.25 u (each inherits 1/25 of the error of the last,
    and adds u/5 + u), terms by 2.25 u. What is left after J terms is at most 1.05 z^(2J+1) < u. With one unit for z
    itself (the slope is at most 1.05) the sum is below artanh z by less than (3 J + 3) u.
    """
    terms = PRECISION // 4  # 5^-(2J+1) < 2^-PRECISION
    power = int(z * 2**PRECISION)
    square, total = (power * power) >> PRECISION, 0
    for j in range(terms):
        total += power // (2 * j + 1)
        power = (power * square) >> PRECISION
    return total * UNIT, (total + 3 * terms + 3) * UNIT


def log_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Bounds of log x = k log 2 + log m, with m in [2/3, 4/3] and log m = 2 artanh((m - 1) / (m + 1))."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    m = x / Fraction(2) ** k
    if m > Fraction(4, 3):
        k, m = k + 1, m / 2
    elif m < Fraction(2, 3):
        k, m = k - 1, m * 2
    z = (m - 1) / (m + 1)
    low, high = artanh_bounds(abs(z))
    low, high = (2 * low, 2 * high) if z >= 0 else (-2 * high, -2 * low)
    return (low + k * LOG_2[0], high + k * LOG_2[1]) if k >= 0 else (low + k * LOG_2[1], high + k * LOG_2[0])


def _log_of_two() -> tuple[Fraction, Fraction]:
    """log 2 = log(4/3) + log(3/2) = 2 artanh(1/7) + 2 artanh(1/5)."""
    one, other = artanh_bounds(Fraction(1, 7)), artanh_bounds(Fraction(1, 5))
    return 2 * (one[0] + other[0]), 2 * (one[1] + other[1])


LOG_2 = _log_of_two()


def exp_above(x: Fraction) -> Fraction:
    """An upper bound of exp x = 2^k exp r, with r = x - k log 2 in [-1/2, 1/2] rounded up.

    The terms r^j / j! of exp r are rounded to units u with an error of at most 2 u each; what is left after J = 40 of
    them is below 2^-40 / 40! < u.
    """
    if x < -4000:
        return Fraction(1, 2**5000)  # exp(-4000) < 2^-5770
    refuse(x <= 4000, "a prediction of the network is too large for this loss; exp of it exceeds all float64.")
    k = int(x / LOG_2[0] + Fraction(1, 2)) if x >= 0 else -int(-x / LOG_2[0] + Fraction(1, 2))
    r = x - k * (LOG_2[0] if k >= 0 else LOG_2[1])  # at least x - k log 2
    scaled = -int(-r * 2**PRECISION // 1)
    term, total = 1 << PRECISION, 0
    for j in range(1, 41):
        total += term
        term = ((term * scaled) >> PRECISION) // j
    return (total + 81) * UNIT * Fraction(2) ** k


def entropy_above(q: Fraction) -> Fraction:
    """An upper bound of q log q for q >= 0."""
    return q * log_bounds(q)[1] if q > 0 else ZERO


def is_positive_definite(M: list[list[Fraction]]) -> bool:
    """Whether a symmetric matrix is proved positive definite; only the lower triangle is read.

    Entries are rounded to a unit; the rounded matrix less k units on its diagonal is no larger than M, because a
    symmetric matrix with entries of at most one unit has eigenvalues of at most k units. Its elimination is without
    any rounding (Bareiss 1968): pivots are the leading minors, and Sylvester's criterion asks that they are positive.
    """
    k = len(M)
    largest = max((abs(M[i][j]) for i in range(k) for j in range(i + 1)), default=ZERO)
    if largest == 0:
        return k == 0
    unit = largest / 2**160
    A = [[int(M[max(i, j)][min(i, j)] // unit) for j in range(k)] for i in range(k)]
    for i in range(k):
        A[i][i] -= k
    before = 1
    for p in range(k):
        pivot, row = A[p][p], A[p]
        if pivot <= 0:
            return False
        for i in range(p + 1, k):
            factor, other = A[i][p], A[i]
            A[i] = [(pivot * other[j] - factor * row[j]) // before if j > p else 0 for j in range(k)]
        before = pivot
    return True


# --- The file --------------------------------------------------------------------------------------------------------

SIZES = {"F64": "d", "F32": "f", "I64": "q", "I32": "i", "I8": "b", "BOOL": "B"}


def read_tables(path: Path) -> tuple[dict[str, Any], dict[str, Table], str]:
    """The metadata and the tables of a safetensors file, and its SHA-256."""
    refuse(path.is_file(), f"cannot read {path}: there is no such file.")
    refuse(path.stat().st_size <= MOST_BYTES, f"{path} has more than {MOST_BYTES} bytes.")
    data = path.read_bytes()
    refuse(len(data) >= 8, f"{path} is no proof: it is too short.")
    (length,) = struct.unpack("<Q", data[:8])
    refuse(length <= min(MOST_HEADER, len(data) - 8), f"{path} is no proof, or is cut off.")
    header, body = parsed(data[8 : 8 + length], path), data[8 + length :]
    metadata = header.pop("__metadata__", {})
    tables, end = {name: table(name, about, body) for name, about in header.items()}, 0
    for begin, stop in sorted(tuple(about["data_offsets"]) for about in header.values()):
        refuse(begin == end, f"{path}: its tables overlap, or leave a gap.")
        end = stop
    refuse(end == len(body), f"{path} is longer or shorter than its header says.")
    return metadata, tables, hashlib.sha256(data).hexdigest()


def parsed(text: bytes | str, path: Path) -> dict[str, Any]:
    """A JSON object in which no name comes twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        refuse(len({name for name, _ in pairs}) == len(pairs), f"{path}: a name comes twice in its header.")
        return dict(pairs)

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise Refused(f"{path} is no proof: its header is not JSON.") from None
    refuse(isinstance(found, dict), f"{path} is no proof: its header is no object.")
    return found


def table(name: str, about: Any, body: bytes) -> Table:
    """One table as exact integers with a common unit."""
    refuse(isinstance(about, dict) and about.keys() == {"dtype", "shape", "data_offsets"}, f"{name!r}: no such table.")
    shape, ends, code = about["shape"], about["data_offsets"], SIZES.get(str(about["dtype"]), "")
    whole = isinstance(shape, list) and isinstance(ends, list) and len(ends) == 2 and len(shape) <= 4 and code != ""
    refuse(whole and all(type(k) is int and 0 <= k <= MOST_BYTES for k in (*shape, *ends)), f"{name!r}: wrong sizes.")
    count, (begin, end) = prod(shape), ends
    refuse(begin <= end <= len(body) and count * struct.calcsize(code) == end - begin, f"{name!r}: wrong length.")
    values = struct.unpack(f"<{count}{code}", body[begin:end])
    if code not in "df":
        return Table(tuple(shape), list(values), 0)
    refuse(all(value - value == 0 for value in values), f"{name!r} has entries that are NaN or infinite.")
    ratios = [value.as_integer_ratio() for value in values]
    bits = max((below.bit_length() - 1 for _, below in ratios), default=0)
    widest = max((abs(above).bit_length() for above, _ in ratios), default=0)
    refuse((widest + bits) * count <= MOST_BITS, f"the numbers of {name!r} are of too different sizes.")
    return Table(tuple(shape), [above << (bits - below.bit_length() + 1) for above, below in ratios], -bits)


class Proof(NamedTuple):
    """What a proof file says."""

    about: dict[str, Any]
    tables: dict[str, Table]

    def table(self, name: str, *shape: int | None) -> Table:
        """A table of a shape, in which None stands for any size."""
        found = self.tables.get(name)
        refuse(found is not None, f"the proof has no table {name!r}.")
        assert found is not None
        right = len(found.shape) == len(shape)
        right = right and all(want in (None, have) for want, have in zip(shape, found.shape, strict=True))
        refuse(right, f"{name!r} has shape {found.shape}, not {shape}.")
        return found

    def number(self, name: str) -> Fraction:
        return self.table(name).exact(0)

    def word(self, name: str, *allowed: str) -> str:
        word = self.about.get(name)
        refuse(isinstance(word, str) and word in allowed, f"{name} must be one of {', '.join(allowed)}.")
        return str(word)

    def flag(self, name: str) -> bool:
        refuse(type(self.about.get(name)) is bool, f"{name} must be true or false.")
        return bool(self.about[name])


def read_proof(path: Path, data: Path | None) -> Proof:
    """The proof with its data, which may be in a second file of the SHA-256 that the first one names."""
    metadata, tables, _ = read_tables(path)
    text = metadata.get("bidual") if isinstance(metadata, dict) else None
    refuse(isinstance(text, str), f"{path} is no proof of bidual.")
    outer = parsed(str(text), path)
    refuse(outer.get("kind") == "proof", f"{path} is no proof of bidual.")
    refuse(outer.get("format") == FORMAT, f"{path} is a proof of another format; this checker reads {FORMAT}.")
    about = outer.get("header")
    refuse(isinstance(about, dict), f"{path} is no proof: it has no header.")
    assert isinstance(about, dict)
    digest = about.get("data")
    refuse(digest is None or data is not None, f"the data are beside {path}; name their file too.")
    refuse(digest is not None or data is None, f"{path} holds its data itself; leave the second file out.")
    if data is not None:
        _, beside, found = read_tables(data)
        refuse(found == digest, f"{data} is not the file of data of this proof: its SHA-256 is {found}.")
        refuse(not beside.keys() & tables.keys(), f"{path} and {data} both have some table.")
        tables = tables | beside
    return Proof(about, tables)


# --- Losses ----------------------------------------------------------------------------------------------------------

Row = list[Fraction]
LOSSES = ("squared", "absolute", "huber", "quantile", "hinge", "squared_hinge", "logistic", "softmax", "poisson")
MARGINS = ("hinge", "squared_hinge", "logistic")


def loss_above(name: str, s: Fraction, p: Fraction, y: Fraction) -> Fraction:
    """An upper bound of l(p, y) for one output; s is delta of huber, or the quantile."""
    r, margin = p - y, 1 - y * p
    match name:
        case "squared":
            return r * r / 2
        case "absolute":
            return abs(r)
        case "huber":
            return r * r / 2 if abs(r) <= s else s * (abs(r) - s / 2)
        case "quantile":
            return max((1 - s) * r, -s * r)
        case "hinge":
            return max(margin, ZERO)
        case "squared_hinge":
            return max(margin, ZERO) ** 2 / 2
        case "logistic":  # log(1 + exp m) = max(m, 0) + log(1 + exp(-|m|)) with m = -y p
            return max(-y * p, ZERO) + log_bounds(1 + exp_above(-abs(p)))[1]
    return exp_above(p) - y * p + entropy_above(y) - y  # poisson


def conjugate_above(name: str, s: Fraction, v: Fraction, y: Fraction) -> Fraction:
    """An upper bound of l*(v, y) = sup_p v p - l(p, y) for one output; it is infinite off its domain."""
    a = v + y if name == "poisson" else -y * v
    match name:
        case "squared":
            return v * v / 2 + v * y
        case "huber":
            return inside(abs(v) <= s, v * v / 2 + v * y)
        case "absolute":
            return inside(abs(v) <= 1, v * y)
        case "quantile":
            return inside(-s <= v <= 1 - s, v * y)
        case "hinge":
            return inside(0 <= a <= 1, -a)
        case "squared_hinge":
            return inside(a >= 0, a * a / 2 - a)
        case "logistic":
            return inside(0 <= a <= 1, ZERO) + entropy_above(a) + entropy_above(1 - a)
    own = y * log_bounds(y)[0] if y > 0 else ZERO
    return inside(a >= 0, ZERO) + entropy_above(a) - a - (own - y)  # poisson


def softmax_above(p: Row, y: Row) -> Fraction:
    """log(sum_k exp p_k) - <y, p>."""
    return max(p) - dot(p, y) + log_bounds(sum((exp_above(k - max(p)) for k in p), ZERO))[1]


def softmax_conjugate_above(v: Row, y: Row) -> Fraction:
    """sum_k q_k log q_k for q = v + y in the simplex."""
    q = list(map(add, v, y))
    return inside(sum(q) == 1 and min(q) >= 0, ZERO) + sum(map(entropy_above, q))


def inside(condition: bool, value: Fraction) -> Fraction:
    if not condition:
        raise Unproved("the dual point is not in the domain of the conjugate of the loss.")
    return value


class DataTerm:
    """F with its targets, weights and intercept."""

    def __init__(self, proof: Proof) -> None:
        Y = proof.table("targets", None, None)
        self.n, self.c = Y.shape
        refuse(self.n > 0 and self.c > 0, "there must be samples and outputs.")
        self.name, self.intercept = proof.word("loss", *LOSSES), proof.flag("intercept")
        self.setting = proof.number("loss_parameter") if self.name in ("huber", "quantile") else ZERO
        self.targets = [[Y.exact(i * self.c + k) for k in range(self.c)] for i in range(self.n)]
        weight = proof.table("weight", self.n) if "weight" in proof.tables else Table((self.n,), [1] * self.n, 0)
        self.weight = [weight.exact(i) for i in range(self.n)]
        refuse(min(self.weight) > 0, "weights must be positive.")
        refuse(self.name != "huber" or self.setting > 0, "delta of the Huber loss must be positive.")
        refuse(self.name != "quantile" or 0 < self.setting < 1, "the quantile must be between 0 and 1.")
        refuse(all(map(self.is_target, self.targets)), "there are targets that this loss does not allow.")
        size = max(abs(proof.number("primal")), abs(proof.number("dual")), Fraction(1, 2**1000))
        self.unit = size / 2**PRECISION  # what each sample is rounded up to

    def is_target(self, y: Row) -> bool:
        if self.name == "softmax":
            return sorted(y) == [0] * (self.c - 1) + [1]
        return all((abs(k) == 1 or self.name not in MARGINS) and (k >= 0 or self.name != "poisson") for k in y)

    def above(self, P: list[Row], offset: Row) -> Fraction:
        """An upper bound of F(P): the sum at any offset is at least the least one."""
        moved = [list(map(add, p, offset)) for p in P]
        return self.summed(lambda p, y: loss_above(self.name, self.setting, p, y), softmax_above, moved)

    def conjugate_above(self, V: Table) -> Fraction:
        """An upper bound of F*(V) = sum_i w_i l*(v_i / w_i)."""
        c = self.c
        shares = [[V.exact(i * c + k) / w for k in range(c)] for i, w in enumerate(self.weight)]
        return self.summed(lambda v, y: conjugate_above(self.name, self.setting, v, y), softmax_conjugate_above, shares)

    def summed(
        self, entry: Callable[[Fraction, Fraction], Fraction], row: Callable[[Row, Row], Fraction], P: list[Row]
    ) -> Fraction:
        """sum_i w_i f(p_i, y_i), of rows for the softmax loss and else of entries, rounded up for every sample."""
        total = ZERO
        for p, y, w in zip(P, self.targets, self.weight, strict=True):
            value = row(p, y) if self.name == "softmax" else sum(map(entry, p, y), ZERO)
            total += rounded_up(w * value, self.unit)
        return total

    def dual_point(self, proof: Proof) -> Table:
        """V of the file, changed by what float64 could not hold, so that it meets its equations exactly.

        Rows of the softmax loss sum to zero: the entry of the sample's own class takes what the others leave. With an
        intercept columns sum to zero: the entry of one row takes what the others leave. Whatever comes out is then
        checked: this is only a rule to write V with few digits.
        """
        V, c = proof.table("dual_point", self.n, self.c), self.c
        whole = list(V.whole)
        if self.name == "softmax":
            for i, y in enumerate(self.targets):
                own = i * c + y.index(Fraction(1))
                whole[own] -= sum(whole[i * c : (i + 1) * c])
        if self.intercept:
            rows = proof.table("anchor", c).whole
            refuse(all(0 <= row < self.n for row in rows), "an anchor is no row.")
            refuse(len(set(rows)) == 1 or self.name != "softmax", "the softmax loss has one anchor.")
            for k, row in enumerate(rows):
                whole[row * c + k] -= sum(whole[k::c])
        return Table(V.shape, whole, V.unit)


# --- Linear maps -----------------------------------------------------------------------------------------------------


class Map(NamedTuple):
    """A: Z (p, a, b) -> predictions (n, c), by A Z and the blocks of A* V, as integers and their unit."""

    shape: tuple[int, int, int]
    forward: Callable[[Table], tuple[list[list[int]], int]]
    adjoint: Callable[[Table], tuple[Iterator[list[list[int]]], int]]


def gated_map(X: Table, D: Table, c: int) -> Map:
    """A Z = sum_p D_p X Z_p with D_p diagonal of entries 0, 1 or -1: given activation patterns."""
    (n, d), (p, _) = X.shape, D.shape
    affordable(n * d * p * c)
    refuse(set(D.whole) <= {0, 1, -1}, "patterns must be 0, 1 or -1.")
    patterns, samples = D.rows(n), X.rows(d)

    def masked(numbers: list[int], signs: list[int]) -> int:
        plus = sum(compress(numbers, [s > 0 for s in signs]))
        return plus - sum(compress(numbers, [s < 0 for s in signs])) if -1 in signs else plus

    def forward(Z: Table) -> tuple[list[list[int]], int]:
        entries = [[Z.whole[j * c + k :: d * c] for k in range(c)] for j in range(d)]  # over blocks
        found = []
        for i, x in enumerate(samples):
            signs = [pattern[i] for pattern in patterns]
            found.append([sum(x[j] * masked(entries[j][k], signs) for j in range(d) if x[j]) for k in range(c)])
        return found, X.unit + Z.unit

    def adjoint(V: Table) -> tuple[Iterator[list[list[int]]], int]:
        columns, duals = list(zip(*samples, strict=True)), [V.whole[k::c] for k in range(c)]
        products = [[list(map(mul, x, v)) for v in duals] for x in columns]
        blocks = ([[masked(both, signs) for both in row] for row in products] for signs in patterns)
        return blocks, X.unit + V.unit

    return Map((p, d, c), forward, adjoint)


def features_of(X: Table, U: Table) -> list[list[int]]:
    """(x_i u_j)_+ for all neurons u_j and samples x_i, in the unit of their product."""
    samples = X.rows(X.shape[1])
    return [[max(dot(x, u), 0) for x in samples] for u in U.rows(X.shape[1])]


def neuron_map(X: Table, U: Table, c: int) -> Map:
    """A Z = sum_j (X u_j)_+ z_j^T for given neurons u_j."""
    affordable(X.shape[0] * U.shape[0] * (X.shape[1] + c))
    features = features_of(X, U)

    def forward(Z: Table) -> tuple[list[list[int]], int]:
        outputs = [Z.whole[k::c] for k in range(c)]
        return [[dot(h, z) for z in outputs] for h in zip(*features, strict=True)], X.unit + U.unit + Z.unit

    def adjoint(V: Table) -> tuple[Iterator[list[list[int]]], int]:
        duals = [V.whole[k::c] for k in range(c)]
        return ([[dot(h, v) for v in duals]] for h in features), X.unit + U.unit + V.unit

    return Map((U.shape[0], 1, c), forward, adjoint)


def map_of(proof: Proof, n: int, c: int) -> Map:
    kind = proof.word("map", "gated", "neurons")
    X = proof.table("X", n, None)
    d = X.shape[1]
    if kind == "neurons":
        return neuron_map(X, proof.table("neurons", None, d), c)
    return gated_map(X, proof.table("patterns", None, n), c)


# --- Gauges ----------------------------------------------------------------------------------------------------------


def length_above(numbers: list[int], unit: int) -> Fraction:
    """An upper bound of the Euclidean length."""
    return root_above(times_power(dot(numbers, numbers), 2 * unit))


def price_above(proof: Proof, gauge: str, Z: Table) -> Fraction:
    """An upper bound of Omega(Z): sums of Frobenius or of nuclear norms of blocks.

    The nuclear norm is at most sum_j |Z q_j| |q_j| + sqrt(b) |Z - sum_j (Z q_j) q_j^T|_F for any vectors q_j, by the
    triangle inequality and because a matrix with b columns has at most b singular values.
    """
    p, a, b = Z.shape
    blocks = Z.rows(a * b)
    if gauge == "frobenius" or min(a, b) == 1:
        return sum((length_above(block, Z.unit) for block in blocks), ZERO)
    Q, total = proof.table("right_vectors", p, b, b), ZERO
    for block, q in zip(blocks, Q.rows(b * b), strict=True):
        if not any(block):
            continue
        rows, vectors = [block[i * b : (i + 1) * b] for i in range(a)], [q[j::b] for j in range(b)]
        images = [[dot(row, v) for row in rows] for v in vectors]  # Z q_j
        for v, image in zip(vectors, images, strict=True):
            total += length_above(image, Z.unit + Q.unit) * length_above(v, Q.unit)
        back = [[sum(x[i] * v[k] for x, v in zip(images, vectors, strict=True)) for k in range(b)] for i in range(a)]
        shift = -2 * Q.unit  # of Z to the unit of what came back
        rest = [(rows[i][k] << shift) - back[i][k] for i in range(a) for k in range(b)]
        total += root_above(Fraction(b)) * length_above(rest, Z.unit + 2 * Q.unit)
    return total


def polar_above(gauge: str, blocks: Iterator[list[list[int]]], unit: int, beta: Fraction) -> Fraction:
    """An upper bound of Omega°(G): the largest Frobenius or spectral norm of a block."""
    if gauge == "frobenius":
        return root_above(times_power(max(dot(g, g) for g in map(flat, blocks)), 2 * unit))
    held = [
        block if len(block) >= len(block[0]) else [list(row) for row in zip(*block, strict=True)] for block in blocks
    ]
    grams = []
    for block in held:
        columns = list(zip(*block, strict=True))
        grams.append([[times_power(sum(map(mul, x, y)), 2 * unit) for y in columns] for x in columns])
    return least_proved(lambda level: all(is_positive_definite(shifted(level**2, G)) for G in grams), beta)


def neuron_polar_above(proof: Proof, blocks: Iterator[list[list[int]]], unit: int) -> Fraction:
    """The polar of sum_j |u_j| |z_j| is the largest |g_j| / |u_j|."""
    U = proof.table("neurons", None, None)
    ratios = [
        Fraction(dot(g, g), dot(u, u)) for u, g in zip(U.rows(U.shape[1]), map(flat, blocks), strict=True) if any(u)
    ]
    return root_above(max(ratios, default=ZERO) * Fraction(4) ** (unit - U.unit))


def flat(block: list[list[int]]) -> list[int]:
    return [entry for row in block for entry in row]


def shifted(level: Fraction, M: list[list[Fraction]]) -> list[list[Fraction]]:
    """level I - M."""
    return [[(level if i == j else 0) - entry for j, entry in enumerate(row)] for i, row in enumerate(M)]


def least_proved(proves: Callable[[Fraction], bool], beta: Fraction) -> Fraction:
    """The first of beta, beta (1 + 2^-50), beta (1 + 2^-46), ... that is proved to bound the polar."""
    for excess in (ZERO, *(Fraction(1, 2**k) for k in range(50, 1, -4))):
        if proves(beta * (1 + excess)):
            return beta * (1 + excess)
    raise Unproved("the dual point is not feasible: its polar is not proved to be near beta.")


# --- The two bounds --------------------------------------------------------------------------------------------------


def primal_above(proof: Proof, data: DataTerm, A: Map, gauge: str, beta: Fraction) -> Fraction:
    """The objective of the network of the file, F(A Z + b) + beta Omega(Z), rounded up.

    Neurons of a dictionary are priced by their own lengths: |u_j| |z_j| is the least weight decay of the neuron.
    """
    Z = proof.table("point", *A.shape)
    refuse(data.intercept or not any(proof.table("offset", data.c).whole), "there is no intercept, but an offset.")
    offset = [proof.table("offset", data.c).exact(k) for k in range(data.c)]
    whole, unit = A.forward(Z)
    fit = data.above([[times_power(p, unit) for p in row] for row in whole], offset)
    if proof.about["map"] != "neurons":
        return fit + beta * price_above(proof, gauge, Z)
    U, c = proof.table("neurons", A.shape[0], None), data.c
    lengths = [length_above(u, U.unit) for u in U.rows(U.shape[1])]
    outputs = [length_above(z, Z.unit) for z in Z.rows(c)]
    return fit + beta * sum(map(mul, lengths, outputs))


def dual_below(proof: Proof, data: DataTerm, A: Map, gauge: str, beta: Fraction) -> Fraction:
    """A lower bound of the least objective, by (1).

    If the polar of V is only known to be at most pi > beta, then t V with t = beta / pi is feasible. D is concave, and
    D(0) = inf F >= 0 because losses are not negative, so that D(t V) >= t D(V) for t <= 1. Zero is always a bound.
    """
    V = data.dual_point(proof)
    if data.intercept and any(sum(V.whole[k :: data.c]) for k in range(data.c)):
        raise Unproved("the dual point is not balanced.")
    value = -data.conjugate_above(V)
    if value <= 0:
        return ZERO
    blocks, unit = A.adjoint(V)
    if proof.about["map"] == "neurons":
        polar = neuron_polar_above(proof, blocks, unit)
    else:
        polar = polar_above(gauge, blocks, unit, beta)
    return value if polar <= beta else value * beta / polar


class Bounds(NamedTuple):
    """What is proved: dual <= least objective <= primal, and of which problem it is the least."""

    dual: Fraction
    primal: Fraction
    rivals: str


def bounds(proof: Proof) -> Bounds:
    """Both bounds; Unproved if one is not what the file claims."""
    data = DataTerm(proof)
    beta, primal, dual = (proof.number(name) for name in ("beta", "primal", "dual"))
    refuse(beta > 0, "beta must be positive.")
    gauge = proof.word("gauge", "frobenius", "nuclear")
    proof.word("scope", "BLOCKS")
    A = map_of(proof, data.n, data.c)
    refuse(prod(A.shape) > 0, "there must be blocks with entries.")
    above = primal_above(proof, data, A, gauge, beta)
    if above > primal:
        raise Unproved(f"the network has objective {shown(above)}, more than the claimed {shown(primal)}.")
    below = dual_below(proof, data, A, gauge, beta)
    if below < dual:
        raise Unproved(f"the lower bound is {shown(below)}, less than the claimed {shown(dual)}.")
    return Bounds(below, above, f"point of the convex program over its {A.shape[0]} given blocks")


def sentence(proof: Proof, found: Bounds) -> str:
    """With the bounds that are claimed, which are float64, and the gap between those that are proved, rounded up."""
    gap = max((found.primal - found.dual) / found.primal, ZERO) if found.primal else ZERO
    return (
        f"proved: the network has an objective of at most {float(proof.number('primal'))!r}, and no {found.rivals} has "
        f"one below {float(proof.number('dual'))!r}: its relative gap is at most {float(gap) * 1.001:.4g}."
    )


def shown(x: Fraction) -> str:
    return repr(float(x)) if abs(x) < 2**1023 else "beyond float64"


def verdict(path: Path, data: Path | None = None) -> tuple[int, str]:
    """Exit code and sentence."""
    try:
        proof = read_proof(path, data)
        return 0, sentence(proof, bounds(proof))
    except Unproved as fault:
        return 1, f"not proved: {fault}"
    except Refused as fault:
        return 2, f"error: {fault}"
    except Exception as fault:  # whatever the file holds: nothing is proved, and nobody is shown a traceback
        return 2, f"error: {path} cannot be read as a proof ({type(fault).__name__})."


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[0] in ("-h", "--help"):
        print("usage: bidual_check.py PROOF [DATA]", file=sys.stderr)
        return 2
    code, words = verdict(*map(Path, arguments))
    print(words, file=sys.stderr if code == 2 else sys.stdout)
    return code


def _run() -> NoReturn:
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    _run()
