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
from functools import cmp_to_key
from itertools import compress, product
from math import gcd, isqrt, prod
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


class Matrix(NamedTuple):
    """Exact numbers by rows of one width, in one unit."""

    rows: list[list[int]]
    unit: int
    width: int

    def columns(self) -> list[tuple[int, ...]]:
        return list(zip(*self.rows, strict=True)) if self.rows else [()] * self.width


def matrix(found: Table) -> Matrix:
    """A table as a matrix; one of numbers as a column."""
    width = found.shape[-1] if len(found.shape) > 1 else 1
    return Matrix(found.rows(width), found.unit, width)


def plus(*parts: Matrix) -> Matrix:
    unit = min(part.unit for part in parts)
    lifted = [[[x << part.unit - unit for x in row] for row in part.rows] for part in parts]
    rows = [list(map(sum, zip(*each, strict=True))) for each in zip(*lifted, strict=True)]
    return Matrix(rows, unit, parts[0].width)


def minus(M: Matrix) -> Matrix:
    return M._replace(rows=[[-x for x in row] for row in M.rows])


def by_rows(M: Matrix, factors: Table) -> Matrix:
    """Every row times a number."""
    rows = [[f * x for x in row] for f, row in zip(factors.whole, M.rows, strict=True)]
    return Matrix(rows, M.unit + factors.unit, M.width)


def crossed(A: Matrix, B: Matrix) -> Matrix:
    """A^T B."""
    others = B.columns()
    return Matrix([[dot(x, y) for y in others] for x in A.columns()], A.unit + B.unit, B.width)


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
MARGINS = ("hinge", "squared_hinge", "logistic")


# Upper bounds of l(p, y) for one output; s is delta of huber, or the quantile
VALUES: dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
    "squared": lambda s, p, y: (p - y) ** 2 / 2,
    "absolute": lambda s, p, y: abs(p - y),
    "huber": lambda s, p, y: (p - y) ** 2 / 2 if abs(p - y) <= s else s * (abs(p - y) - s / 2),
    "quantile": lambda s, p, y: max((1 - s) * (p - y), -s * (p - y)),
    "hinge": lambda s, p, y: max(1 - y * p, ZERO),
    "squared_hinge": lambda s, p, y: max(1 - y * p, ZERO) ** 2 / 2,
    # log(1 + exp m) = max(m, 0) + log(1 + exp(-|m|)) with m = -y p
    "logistic": lambda s, p, y: max(-y * p, ZERO) + log_bounds(1 + exp_above(-abs(p)))[1],
    "poisson": lambda s, p, y: exp_above(p) - y * p + entropy_above(y) - y,
}

# Upper bounds of l*(v, y) = sup_p v p - l(p, y), which is infinite off its domain; a = -y v for targets of -1 and 1
CONJUGATES: dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
    "squared": lambda s, v, y: v * v / 2 + v * y,
    "absolute": lambda s, v, y: inside(abs(v) <= 1, v * y),
    "huber": lambda s, v, y: inside(abs(v) <= s, v * v / 2 + v * y),
    "quantile": lambda s, v, y: inside(-s <= v <= 1 - s, v * y),
    "hinge": lambda s, v, y: inside(0 <= -y * v <= 1, y * v),
    "squared_hinge": lambda s, v, y: inside(-y * v >= 0, v * v / 2 + y * v),
    "logistic": lambda s, v, y: inside(0 <= -y * v <= 1, ZERO) + entropy_above(-y * v) + entropy_above(1 + y * v),
    # a log a - a - (y log y - y) with a = v + y
    "poisson": lambda s, v, y: (
        inside(v + y >= 0, ZERO) + entropy_above(v + y) - v - (y * log_bounds(y)[0] if y else ZERO)
    ),
}


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


LOSSES = (*VALUES, "softmax")


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
        return self.summed(VALUES, softmax_above, [list(map(add, p, offset)) for p in P])

    def conjugate_above(self, V: Table) -> Fraction:
        """An upper bound of F*(V) = sum_i w_i l*(v_i / w_i)."""
        c = self.c
        shares = [[V.exact(i * c + k) / w for k in range(c)] for i, w in enumerate(self.weight)]
        return self.summed(CONJUGATES, softmax_conjugate_above, shares)

    def summed(self, entries: dict[str, Any], softmax: Callable[[Row, Row], Fraction], P: list[Row]) -> Fraction:
        """sum_i w_i f(p_i, y_i), of rows for the softmax loss and else of entries, rounded up for every sample."""
        total = ZERO
        for p, y, w in zip(P, self.targets, self.weight, strict=True):
            if self.name == "softmax":
                value = softmax(p, y)
            else:
                value = sum(map(entries[self.name], [self.setting] * self.c, p, y), ZERO)
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


def dense_map(A: Table, shape: tuple[int, ...], n: int, c: int) -> Map:
    """A as a matrix from the entries of Z to those of the predictions."""
    affordable(len(A.whole))
    (p, a, b), columns, rows = shape, matrix(A).columns(), matrix(A).rows

    def forward(Z: Table) -> tuple[list[list[int]], int]:
        found = [dot(row, Z.whole) for row in rows]
        return [found[i * c : (i + 1) * c] for i in range(n)], A.unit + Z.unit

    def adjoint(V: Table) -> tuple[Iterator[list[list[int]]], int]:
        blocks = ([[dot(columns[(q * a + i) * b + k], V.whole) for k in range(b)] for i in range(a)] for q in range(p))
        return blocks, A.unit + V.unit

    return Map((p, a, b), forward, adjoint)


def neuron_map(X: Table, U: Table, c: int) -> Map:
    """A Z = sum_j (X u_j)_+ z_j^T for given neurons u_j."""
    affordable(X.shape[0] * U.shape[0] * (X.shape[1] + c))
    samples, unit = matrix(X).rows, X.unit + U.unit
    features = Matrix([[max(dot(x, u), 0) for x in samples] for u in matrix(U).rows], unit, X.shape[0])

    def forward(Z: Table) -> tuple[list[list[int]], int]:
        return [[dot(h, Z.whole[k::c]) for k in range(c)] for h in features.columns()], unit + Z.unit

    def adjoint(V: Table) -> tuple[Iterator[list[list[int]]], int]:
        return ([[dot(h, V.whole[k::c]) for k in range(c)]] for h in features.rows), unit + V.unit

    return Map((U.shape[0], 1, c), forward, adjoint)


def map_of(proof: Proof, n: int, c: int) -> Map:
    kind = proof.word("map", "gated", "neurons", "dense")
    if kind == "dense":
        shape = proof.table("point", None, None, None).shape
        return dense_map(proof.table("design", n * c, prod(shape)), shape, n, c)
    X = proof.table("X", n, None)
    if kind == "neurons":
        return neuron_map(X, proof.table("neurons", None, X.shape[1]), c)
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
    grams = []
    for block in blocks:
        rows = Matrix(block, unit, len(block[0])).columns() if len(block) > len(block[0]) else block  # the short side
        grams.append([[times_power(dot(x, y), 2 * unit) for y in rows] for x in rows])
    return least_proved(lambda level: all(is_positive_definite(shifted(level**2, G)) for G in grams), beta)


def neuron_polar_above(proof: Proof, blocks: Iterator[list[list[int]]], unit: int) -> Fraction:
    """The polar of sum_j |u_j| |z_j| is the largest |g_j| / |u_j|."""
    U = proof.table("neurons", None, None)
    ratios = (Fraction(dot(*g, *g), dot(u, u)) for u, g in zip(matrix(U).rows, blocks, strict=True) if any(u))
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


# --- The polar over all neurons --------------------------------------------------------------------------------------


class Cell:
    """Neurons z = (w, u), |w| = |u|, with known signs of output weights w, or none, and of x_f u for fixed rows f.

    For all of them 2 w^T V^T (X u)_+ <= F(z, h) with h = |X u| of the other rows (docs/product_bound.md): products of
    the non-negative a = h + X u, b = h - X u, P z (known signs) and |g| kappa w + g u (where signs of w are known:
    kappa w = sum |w_k| >= |w| = |u|) are weighed with multipliers that are not negative. With A = Y + E, B = Y - E,
    E z = X u, and H = D - N, for any Y

        F(z, h) = F(z, Y z) + 2 (h - Y z)^T R z - (h - Y z)^T H (h - Y z)
                <= z^T T z + sum_i (omega_i / e_i) (R_i z)^2,      e = H omega > 0 with N >= 0,

    because 2 x_i x_j <= x_i^2 omega_j / omega_i + x_j^2 omega_i / omega_j proves H >= diag(e / omega). With |z|^2 = 2
    no neuron of the cell is steeper than s, if s I - T - (sum_i (omega_i / e_i) |R_i|^2) I is positive definite.
    """

    def __init__(self, proof: Proof, name: str, rows: Matrix, V: Matrix) -> None:
        self.proof, self.name, self.c, self.d = proof, name, V.width, rows.width
        self.size = self.c + self.d
        self.signs = tuple(self.table("signs", self.c).whole) if f"{name}.signs" in proof.tables else None
        cuts, sides = self.table("rows", None).whole, self.table("row_signs", None).whole
        refuse(len(cuts) == len(sides) and {*sides, *(self.signs or ())} <= {1, -1}, "signs are 1 or -1.")
        refuse(set(cuts) <= set(range(len(rows.rows))) and len(set(cuts)) == len(cuts), "a cell is cut by no row.")
        self.fixed = tuple(zip(cuts, sides, strict=True))
        free = [i for i in range(len(rows.rows)) if i not in set(cuts)]
        active = [row for row, sign in self.fixed if sign > 0]
        one, self.m, self.k = 1 << -rows.unit, len(free), len(self.signs or ()) + len(cuts)
        self.kappa = [sign * one for sign in self.signs or [0] * self.c] + [0] * self.d  # in the unit of the rows
        forms = [[sign * one * (j == k) for j in range(self.size)] for k, sign in enumerate(self.signs or ())]
        forms += [[0] * self.c + [sign * x for x in rows.rows[row]] for row, sign in self.fixed]
        self.P = Matrix(forms, rows.unit, self.size)
        before, after = [0] * self.c, [0] * self.d
        self.E, self.active = (
            Matrix([before + rows.rows[i] for i in some], rows.unit, self.size) for some in (free, active)
        )
        self.V, self.active_V = (
            Matrix([V.rows[i] + after for i in some], V.unit, self.size) for some in (free, active)
        )
        self.read_pairs()

    def table(self, part: str, *shape: int | None) -> Table:
        return self.proof.table(f"{self.name}.{part}", *shape)

    def weight(self, part: str, *shape: int | None) -> Table:
        """Multipliers, which are those of the file times its scale."""
        scale, found = self.table("scale"), self.table(part, *shape)
        refuse(scale.whole[0] > 0, "the scale must be positive.")
        return Table(found.shape, [scale.whole[0] * x for x in found.whole], scale.unit + found.unit)

    def positive(self, part: str, *shape: int | None) -> Table:
        found = self.weight(part, *shape)
        refuse(min(found.whole, default=0) >= 0, f"{part} must not be negative.")
        return found

    def forms(self, weights: str, cones: str, count: int) -> Matrix:
        """Rows G of forms that are not negative: weighed rows of P, and |g| kappa + g, with |g| rounded up."""
        W, g = self.positive(weights, count, self.k), self.weight(cones, count, self.d)
        refuse(self.signs is not None or not any(g.whole), "cones need signs of the output weights.")
        weighed = crossed(Matrix([list(x) for x in matrix(W).columns()], W.unit, count), self.P)
        rows = matrix(g).rows
        directions = Matrix([[0] * self.c + row for row in rows], g.unit, self.size)
        lengths = [isqrt(dot(row, row) << 128) + 1 if any(row) else 0 for row in rows]
        along = Matrix([[x * y for y in self.kappa] for x in lengths], g.unit - 64 + self.P.unit, self.size)
        return plus(weighed, directions, along)

    def read_pairs(self) -> None:
        """Weights of a_k a_l, b_k b_l (in both orders) and 2 a_k b_l, of rows or of clusters of rows with shares."""
        self.clustered = f"{self.name}.labels" in self.proof.tables
        self.labels, self.shares = list(range(self.m)), Table((self.m,), [1] * self.m, 0)
        if self.clustered:
            self.labels, self.shares = self.table("labels", self.m).whole, self.table("shares", self.m)
            refuse(set(self.labels) <= set(range(self.m)), "labels must be small whole numbers.")
            refuse(min(self.shares.whole, default=0) >= 0, "shares must not be negative.")
        self.pairs = []
        for kind in ("aa", "bb", "ab"):
            places = self.table(f"places_{kind}", None, 2)
            refuse(set(places.whole) <= set(range(self.m)), "a pair has no rows.")
            self.pairs.append((places.rows(2), self.positive(f"pairs_{kind}", places.shape[0])))

    def met(self, kind: int, M: Matrix, *turns: bool) -> Matrix:
        """S K S^T M for weights K of a kind, with K^T if turned, or their sum; S gives rows what their cluster has."""
        places, weights = self.pairs[kind]
        sums, out = [[0] * M.width for _ in range(self.m)], [[0] * M.width for _ in range(self.m)]
        for label, row in zip(self.labels, by_rows(M, self.shares).rows, strict=True):
            sums[label] = list(map(add, sums[label], row)) if self.clustered else row
        for turned in turns:
            for place, w in zip(places, weights.whole, strict=True):
                k, other = reversed(place) if turned else place
                out[k] = [o + w * x for o, x in zip(out[k], sums[other], strict=True)]
        unit = M.unit + self.shares.unit + weights.unit
        return by_rows(Matrix([out[k] for k in self.labels], unit, M.width), self.shares)

    def form(self) -> tuple[list[list[Fraction]], Fraction]:
        """The symmetric part of T, and sum_i (omega_i / e_i) |R_i|^2."""
        omega, D = self.table("omega", self.m), self.table("diagonal", self.m)
        Y, E, both = matrix(self.table("Y", self.m, self.size)), self.E, (False, True)
        A, B, o = plus(Y, E), plus(Y, minus(E)), matrix(omega)
        e = plus(by_rows(o, D), *(minus(self.met(kind, o, *both)) for kind in range(3)))
        if min((*omega.whole, *(row[0] for row in e.rows)), default=1) <= 0:
            raise Unproved(f"omega or H omega is not positive in {self.name}.")
        on_a, on_b = self.forms("on_plus", "cone_plus", self.m), self.forms("on_minus", "cone_minus", self.m)
        aa, bb = self.met(0, A, *both), self.met(1, B, *both)
        ab, ba = self.met(2, B, False), self.met(2, A, True)
        halves = plus(self.V, on_a, on_b)
        R = plus(aa, bb, ab, ba, minus(by_rows(Y, D)), halves._replace(unit=halves.unit - 1))
        rest, power = ZERO, Fraction(2) ** (2 * R.unit + omega.unit - e.unit)
        for x, y, row in zip(omega.whole, e.rows, R.rows, strict=True):
            rest += rounded_up(Fraction(x * dot(row, row), y[0]) * power)
        b, size = self.weight("balance"), self.size  # of |u|^2 - |w|^2 = 0
        signs = [[(i == j) * (1 if i >= self.c else -1) * b.whole[0] for j in range(size)] for i in range(size)]
        T = plus(
            crossed(A, plus(self.V, on_a, aa, ab, ab)),
            crossed(B, plus(on_b, bb)),
            crossed(E, by_rows(E, D)),
            minus(crossed(Y, by_rows(Y, D))),
            crossed(self.P, self.forms("form_pairs", "form_cones", self.k)),
            crossed(self.active, plus(self.active_V, self.active_V)),
            Matrix(signs, b.unit, size),
        )
        pairs = zip(T.rows, T.columns(), strict=True)
        return [[times_power(x + y, T.unit - 1) for x, y in zip(*pair, strict=True)] for pair in pairs], rest


def covers(cuts: list[tuple[tuple[int, int], ...]]) -> bool:
    """Whether lists of (row, sign) are the leaves of a tree that cuts by the signs of rows."""
    if any(not cut for cut in cuts):
        return True
    for row in {cut[0][0] for cut in cuts}:
        halves = ([cut[1:] for cut in cuts if cut[0] == (row, sign)] for sign in (1, -1))
        if all(half and covers(half) for half in halves):
            return True
    return False


def product_polar_above(proof: Proof, V: Table, beta: Fraction) -> Fraction:
    """An upper bound of |V^T (X u)_+| over |u| = 1, by cells that cover all neurons.

    The cells are about rows l_k x_k that are near those of X. The ReLU is 1-Lipschitz: what is left of sample i, whose
    row is k, costs |v_i| |x_i - l_k x_k|.
    """
    n, c = V.shape
    X, near = matrix(proof.table("X", n, None)), matrix(proof.table("rows", None, None))
    count, row_of = len(near.rows), proof.table("row_of", n).whole
    refuse(near.width == X.width and set(row_of) <= set(range(count)), "the rows are not those of the samples.")
    lengths, merged, left = proof.table("lengths", count), [[0] * c for _ in range(count)], ZERO
    scaled = by_rows(near, lengths)
    for x, v, k in zip(X.rows, V.rows(c), row_of, strict=True):
        merged[k] = [a + lengths.whole[k] * b for a, b in zip(merged[k], v, strict=True)]
        rest = plus(Matrix([x], X.unit, X.width), minus(scaled._replace(rows=[scaled.rows[k]])))
        left += length_above(v, V.unit) * length_above(rest.rows[0], rest.unit)
    total = proof.about.get("cells")
    refuse(type(total) is int and 0 < total <= len(proof.tables), "cells must be a whole number.")
    duals = Matrix(merged, V.unit + lengths.unit, c)
    cells = [Cell(proof, f"cell{k}", near, duals) for k in range(int(str(total)))]
    by_signs: dict[tuple[int, ...] | None, list[tuple[tuple[int, int], ...]]] = {}
    for cell in cells:
        by_signs.setdefault(cell.signs, []).append(cell.fixed)
    choices: Any = [None] if None in by_signs else product((1, -1), repeat=c)
    if not all(signs in by_signs and covers(by_signs[signs]) for signs in choices):
        raise Unproved("the cells do not cover all neurons.")
    forms = [cell.form() for cell in cells]
    return least_proved(lambda s: all(is_positive_definite(shifted(s - left - rest, T)) for T, rest in forms), beta)


def plane_polar_above(proof: Proof, V: Table, beta: Fraction) -> Fraction:
    """An upper bound of |V^T (X u)_+| over |u| = 1 for samples of one or two numbers, by all activation patterns.

    The directions at which a row changes its sign, and the axes, cut the plane into arcs of at most a right angle. On
    one, from u_1 to u_2, V^T (X u)_+ = M u, and |M u| <= s |u| for all u = r u_1 + t u_2 with r, t >= 0 exactly if the
    form Q = s^2 I - M^T M has q_11, q_22 >= 0 and q_12 >= 0 or q_12^2 <= q_11 q_22.
    """
    n, c = V.shape
    X = proof.table("X", n, None)
    refuse(X.shape[1] in (1, 2), "the plane has one or two numbers per sample.")
    affordable(2 * n * n * (c + 2))
    samples, duals = [(row[0], row[-1] if X.shape[1] == 2 else 0) for row in X.rows(X.shape[1])], V.rows(c)
    turns = {(1, 0), (0, 1), (-1, 0), (0, -1)}
    for x, y in samples:
        if x or y:
            g = gcd(x, y)
            turns |= {(-y // g, x // g), (y // g, -x // g)}
    around = sorted(turns, key=cmp_to_key(by_angle))
    arcs = []
    for u, v in zip(around, around[1:] + around[:1], strict=True):
        active = [dot(x, (u[0] + v[0], u[1] + v[1])) > 0 for x in samples]
        rows = [list(compress(each, active)) for each in (*zip(*samples, strict=True), *zip(*duals, strict=True))]
        images = [[dot(w, (dot(rows[0], V_k), dot(rows[1], V_k))) for V_k in rows[2:]] for w in (u, v)]
        pairs = ((u, u, 0, 0), (u, v, 0, 1), (v, v, 1, 1))
        arcs.append([(dot(w, z), dot(images[i], images[j])) for w, z, i, j in pairs])
    unit = Fraction(4) ** (X.unit + V.unit)

    def proves(s: Fraction) -> bool:
        for arc in arcs:
            first, mixed, last = (s * s / unit * lengths - images for lengths, images in arc)
            if first < 0 or last < 0 or (mixed < 0 and mixed * mixed > first * last):
                return False
        return True

    return least_proved(proves, beta)


def by_angle(u: tuple[int, int], v: tuple[int, int]) -> int:
    """Negative if u comes before v, anticlockwise from (1, 0)."""
    lower = [(y, x) < (0, 0) for x, y in (u, v)]
    return lower[0] - lower[1] or (u[1] * v[0] > u[0] * v[1]) - (u[1] * v[0] < u[0] * v[1])


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
    if proof.about["scope"] == "ALL_PATTERNS":
        polar = (plane_polar_above if proof.about["polar"] == "plane" else product_polar_above)(proof, V, beta)
        return value if polar <= beta else value * beta / polar
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
    everywhere = proof.word("scope", "BLOCKS", "ALL_PATTERNS") == "ALL_PATTERNS"
    if everywhere:
        proof.word("map", "neurons")
        proof.word("gauge", "frobenius")
        proof.word("polar", "plane", "products")
    A = map_of(proof, data.n, data.c)
    refuse(prod(A.shape) > 0 or everywhere, "there must be blocks with entries.")
    above = primal_above(proof, data, A, gauge, beta)
    if above > primal:
        raise Unproved(f"the network has objective {shown(above)}, more than the claimed {shown(primal)}.")
    below = dual_below(proof, data, A, gauge, beta)
    if below < dual:
        raise Unproved(f"the lower bound is {shown(below)}, less than the claimed {shown(dual)}.")
    blocks = f"point of the convex program over its {A.shape[0]} given blocks"
    return Bounds(below, above, "two-layer ReLU network of any width" if everywhere else blocks)


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
