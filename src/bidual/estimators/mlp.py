"""Two-layer networks as scikit-learn estimators."""

from torch import Tensor

from bidual.architectures import Architecture, GatedMLP, LinearMLP, ReluMLP
from bidual.estimators.network import ConvexNetwork
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.losses.datafit import Datafit
from bidual.patterns import with_constant
from bidual.problems.relu import ReluProblem


class ConvexMLP(ConvexNetwork):
    """What the two-layer classifier and regressor share: parameters, and neurons that see whole samples."""

    _gate_rows = "n_features"

    def _linear(self, X: Tensor) -> Architecture:
        return LinearMLP(self.penalty, self.hidden_bias)

    def _gated(self, X: Tensor, gates: Tensor) -> Architecture:
        return GatedMLP(gates, self.penalty, self.hidden_bias)

    def _relu(self, X: Tensor, neurons: Tensor) -> Architecture:
        return ReluMLP(neurons, bool(self.hidden_bias))

    def _relu_problem(self, X: Tensor, datafit: Datafit) -> ReluProblem:
        return ReluProblem(with_constant(X) if self.hidden_bias else X, datafit, 1.0)

    def _seen(self, X: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return X, weight

    def _bytes(self, X: Tensor, count: int, n_outputs: int) -> int:
        n, d = X.shape
        return 8 * (2 * n * count + 12 * count * (d + 1) * n_outputs + 3 * n * (d + 1) * n_outputs)


class ConvexMLPClassifier(ClassifierTargets, ConvexMLP):
    """Two-layer network classifier trained to a certified global optimum of its convex program.

    It minimises ``sum_i w_i loss_i + beta * Omega(Z)``, where Omega is the weight decay 1/2 sum of squares of the
    network's weights: over all ReLU networks of any width, or over all networks with given gates.

    Args:
        activation: "relu", "gated_relu" (fixed random gates) or "linear". For "relu" the certificate is about all
            activation patterns; on data of high rank its gap can be large although no better network was found.
        beta: the weight decay, in the scaling of a sum over samples; "auto" is a tenth of ``beta_max_``, the smallest
            beta whose optimum is the zero network. See :class:`ConvexMLPClassifierCV` to choose it from data.
        oracle: for "relu", how the steepest neuron is found: "exact" (prove over all activation patterns, or refuse),
            "search" (local, with a proved bound), or "auto": exact where that is affordable.
        n_starts: for "relu", from how many starts neurons are searched for; "auto" is 256.
        n_gates: for "gated_relu", how many gates to sample; "auto" is 200.
        gates: for "gated_relu", own gates in place of sampled ones, shape (n_features, P), in the units of the X that
            is passed to ``fit``.
        penalty: "nuclear" (weight decay); for "gated_relu" and "linear" also "frobenius" (one group per gate) or
            "per_output".
        loss: "auto" (squared), "log_loss" (logistic, or softmax beyond two classes; gives ``predict_proba``), the
            name of a loss in ``bidual.losses.LOSSES``, or a Loss.
        solver: "auto"; for "relu" one of "column_generation", "cone_program" (one output), "frank_wolfe",
            "cutting_planes", "copositive" (both squared loss) and "closed_form" (whitened data), otherwise a name in
            ``bidual.solvers.SOLVERS``.
        tol: the certified relative duality gap to reach; a ConvergenceWarning says so if it was not.
        max_iter: a limit on solver steps, None for the solver's own.
        max_time: a limit in seconds, None for none.
        hidden_bias: whether neurons (and sampled gates) have a bias; it is part of the weight decay, and one more
            dimension for the certificate.
        fit_intercept: whether outputs have an intercept, which is not penalised.
        random_state: the seed of the gates, or of the search for neurons.
        warm_start: start from the last fit's gates or neurons, and its solution.
        verbose: show the gap against time.
        device: where tensors live, "cpu" or "cuda".

    Attributes:
        certificate_: primal, dual, relative_gap and scope of this fit, with their witnesses.
        module_: the trained ``torch.nn.Module``.
        beta_, beta_max_: the beta used, and the smallest that would give the zero network (for "relu" on data of high
            rank, the largest below it that a search has found).
        n_neurons_, n_iter_, history_, solver_: size of the network, steps, records of the gap, which solvers ran.
        classes_, n_features_in_: as in scikit-learn.
    """


class ConvexMLPRegressor(RegressorTargets, ConvexMLP):
    """Two-layer network regressor trained to a certified global optimum of its convex program.

    Parameters and attributes are those of :class:`ConvexMLPClassifier`, without classes. ``loss="auto"`` is squared
    loss, one half of the sum of squares; "huber" and "absolute" are robust. Several targets at once are priced
    together (``penalty="nuclear"``).
    """
