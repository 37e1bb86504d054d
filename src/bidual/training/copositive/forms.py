"""The three relaxations, and the choice of one for given data."""

from bidual.patterns import count_bound
from bidual.patterns.spike_free import is_spike_free
from bidual.problems.relu import ReluProblem
from bidual.runtime.threads import one_thread
from bidual.training.copositive.compact import Compact
from bidual.training.copositive.joint import joint_bound
from bidual.training.copositive.pattern_program import check_squared, pattern_bound
from bidual.training.copositive.relaxed import Relaxed
from bidual.training.copositive.spike_free import spike_free_bound

FORMS = ("patterns", "spike_free", "joint")
_QUICK_PATTERNS, _MOST_PATTERNS = 2_500, 50_000
_LARGEST_LIFT = 1_500  # numbers of V in a conic program
_LARGEST_SIDE = {"spike_free": 1_500, "joint": 500}  # of a semidefinite matrix, of which every step takes eigenvalues


def relax(
    problem: ReluProblem, form: str = "auto", *, max_time: float | None = None, tol: float = 1e-6, branch: int = 0
) -> Relaxed:
    r"""A lower bound of ReLU training over all activation patterns, by a relaxation of the copositive program (17).

    Args:
        problem: weight decay on both layers.
        form: "patterns" is CP (19), one cone per pattern, for squared loss; "spike_free" is CP (20), one cone in all,
            for spike-free X; "joint" needs neither patterns nor spike-free data and is the loosest. "auto" takes (20)
            where it holds, then (19) where the patterns are few, then the joint one.
        max_time: in seconds; the bound is sound at any end.
        tol: relative accuracy to which the relaxation is solved.
        branch: cuts of the sphere, for the joint form only.
    """
    problem.check_plain("the copositive program")
    check_settings(max_time, tol, branch)
    with one_thread():  # many small matrices, for which threads cost more than they gain
        compact = Compact.of(problem)
        return compact.relaxed(relax_compact(compact, form, max_time=max_time, tol=tol, branch=branch))


def check_settings(max_time: float | None, tol: float, branch: int = 0) -> None:
    """Refuse invalid settings."""
    if not 0 < tol < 1:
        raise ValueError(f"tol must be between 0 and 1, got {tol!r}. It is a relative accuracy, like 1e-6.")
    if max_time is not None and not max_time > 0:
        raise ValueError(f"max_time must be None or positive, got {max_time!r}.")
    if not isinstance(branch, int) or isinstance(branch, bool) or branch < 0:
        raise ValueError(f"branch must be a whole number of cuts, 0 or more, got {branch!r}.")


def relax_compact(compact: Compact, form: str, *, max_time: float | None, tol: float, branch: int = 0) -> Relaxed:
    """The same for the problem with rotated outputs."""
    problem, form = compact.rotated, checked_form(compact, form)
    if form == "patterns":
        return pattern_bound(problem, max_time, tol)
    if form == "spike_free":
        return spike_free_bound(problem, max_time, tol)
    return joint_bound(problem, branch, max_time, tol)


def checked_form(compact: Compact, form: str) -> str:
    """The form to use; refused if it is unknown or too large."""
    if form not in (*FORMS, "auto"):
        raise ValueError(f"form must be 'auto' or one of {sorted(FORMS)}, got {form!r}.")
    form = form_for(compact) if form == "auto" else form
    check_size(compact.problem, form)
    return form


def form_for(compact: Compact) -> str:
    """The tightest relaxation that is quick."""
    (n, rank), data = compact.problem.X.shape, compact.problem.datafit
    if rank and is_spike_free(compact.given.X).holds:
        return "spike_free"
    few = count_bound(n, rank) <= _QUICK_PATTERNS and data.targets.numel() <= _LARGEST_LIFT
    return "patterns" if few and data.loss.half_square else "joint"


def check_size(problem: ReluProblem, form: str) -> None:
    """Refuse problems that are too large before any work; ``problem`` is compact."""
    n, rank, c = *problem.X.shape, problem.datafit.targets.shape[1]
    if form == "patterns":
        check_squared(problem, "the copositive program over patterns, CP (19),", "the form 'joint'")
        if count_bound(n, rank) > _MOST_PATTERNS or n * c > _LARGEST_LIFT:
            raise ValueError(
                f"CP (19) for {n} samples of rank {rank} and {c} outputs has up to {count_bound(n, rank):,} cones and "
                f"{n * c:,} dual numbers, more than {_MOST_PATTERNS:,} or {_LARGEST_LIFT:,}; use the form 'joint', or "
                "solver='column_generation'."
            )
        return
    side = rank + c + (0 if form == "spike_free" else n)
    if side > _LARGEST_SIDE[form]:
        raise ValueError(
            f"the {form} relaxation of {n} samples of rank {rank} with {c} outputs is a semidefinite program of size "
            f"{side:,}, more than {_LARGEST_SIDE[form]:,}; use solver='column_generation', or fewer samples."
        )
