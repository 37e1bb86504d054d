"""The certificate of a stage: bounds on its convex program, given the channels of the stages before it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bidual.architectures.modules.layerwise import GatedStage, Head, LayerwiseNetwork
from bidual.gauges import Nuclear
from bidual.losses import Softmax
from bidual.losses.datafit import Datafit
from bidual.operators.patches import Convolution, ImagePatches
from bidual.operators.pooled import PooledOperator
from bidual.operators.stacked import StackedOperator
from bidual.problems.certificate import SoundnessError, certify
from bidual.problems.problem import Problem
from bidual.runtime.registry import Part
from bidual.training.layerwise.inputs import as_input
from bidual.types import Blocks


@dataclass(frozen=True)
class StageCertificate(Part):
    """Bounds on the training problem of a stage over some images.

    Attributes:
        stage: from 1.
        n: images of the training set, not augmented.
        beta: the weight decay for a sum over them.
        objective: of the stage as it is: the sum of losses, weighted as in training, + beta/2 times the sum of squares
            of filters and head.
        dual: a lower bound for all stages with these gates, of any number of filters.
        balanced: the objective once the filters of every gate are balanced; the network is the same.
    """

    stage: int
    n: int
    beta: float
    objective: float
    dual: float
    balanced: float
    name = "stage_certificate"

    @property
    def relative_gap(self) -> float:
        """(objective - dual) / objective; infinite for a network that is not finite."""
        if not math.isfinite(self.objective):
            return math.inf
        return max(self.objective - self.dual, 0.0) / self.objective if self.objective > 0 else 0.0

    def __str__(self) -> str:
        return (
            f"stage {self.stage} on {self.n} images: objective {self.objective:.6g}, lower bound {self.dual:.6g}, "
            f"relative gap {self.relative_gap:.2e} for these gates"
        )


def certify_stage(
    network: LayerwiseNetwork, images: Tensor, labels: Tensor, weight_decay: float, class_weights: Tensor | None = None
) -> StageCertificate:
    """Judge the last stage of a network on images (n, channels, h, w) with labels (n,); weights are positive."""
    problem, Z = stage_problem(network, images, labels, weight_decay, class_weights)
    certificate, objective = certify(problem, Z), _objective(problem, Z, network)
    if math.isfinite(objective) and certificate.dual > objective * (1 + 1e-9):
        raise SoundnessError(f"lower bound {certificate.dual!r} exceeds {objective!r}; please report this network.")
    count = len(network.stages)
    return StageCertificate(count, len(images), problem.beta, objective, certificate.dual, certificate.primal)


def _objective(problem: Problem, Z: Blocks, network: LayerwiseNetwork) -> float:
    """Losses at the stage's own output bias, and its own weights' squares."""
    stage, output, data = network.stages.last, network.heads.last.output, problem.datafit
    assert data.shift is not None
    squares = [p.detach().double().square().sum() for p in (*stage.hidden.parameters(), output.weight)]
    bias = output.bias.detach().double() - data.shift
    return data.value_at(problem.operator.forward(Z), bias) + problem.beta / 2 * float(sum(squares))


@torch.no_grad()
def stage_problem(
    network: LayerwiseNetwork, images: Tensor, labels: Tensor, weight_decay: float, class_weights: Tensor | None = None
) -> tuple[Problem, Blocks]:
    r"""The convex program of the last stage (BM eq. 23, 130), in float64, and the point Z that the stage is.

    min_Z sum_i w_i l(sum_k <B_k^i, Z_k>, y_i) + n weight_decay sum_k |Z_k|_*,   B_k^i = P_a D_k^(i) X_i,
    Z_k = U_k V_k^T.

    w_i is the weight of the class y_i. X_i are the patches of the stage's inputs and D_k^(i) its gates there, both
    computed by the network in its own precision; they are constants of the program.
    """
    stage, head = network.stages.last, network.heads.last
    device = head.output.weight.device
    parts = [_seen(network, as_input(some, device)) for some in images.split(256)]
    X, on = (torch.cat(part) for part in zip(*parts, strict=True))
    patches = ImagePatches(X.double().contiguous(), _convolution(stage, head, X), bias=True)
    by_unit = on.flatten(2)[:, :, patches.pooling.order].unflatten(1, (stage.units, stage.gates))
    patterns = by_unit.permute(2, 1, 0, 3).flatten(2).flatten(0, 1)  # units of a gate lie together
    n_outputs = head.output.out_features
    operator = PooledOperator(patches, n_outputs, patterns=patterns)
    Y = torch.nn.functional.one_hot(labels.long(), n_outputs).double().to(device)
    lifted = operator if stage.units == 1 else StackedOperator(operator, stage.units)
    weight = None if class_weights is None else class_weights.to(labels.device)[labels].to(Y)
    problem = Problem(lifted, Datafit(Softmax(), Y, weight, True), Nuclear(), len(images) * weight_decay)
    return problem, lifted_point(stage, head)


def lifted_point(stage: GatedStage, head: Head) -> Blocks:
    """Z_k = sum_r u_rk vec(V_rk^T)^T (P, units h, a c), rows by unit and patch entry, columns by readout and output."""
    weight, bias = stage.hidden.weight.double(), stage.hidden.bias
    assert bias is not None
    filters = torch.cat([weight.flatten(1), bias.double()[:, None]], 1)  # (m units P, h)
    U = filters.unflatten(0, (stage.factors, stage.units, stage.gates)).permute(2, 1, 3, 0).flatten(1, 2)
    V = head.output.weight.double().unflatten(1, (stage.factors, stage.gates, head.grid**2))
    return U @ V.permute(2, 1, 3, 0).flatten(2)


def _seen(network: LayerwiseNetwork, x: Tensor) -> tuple[Tensor, Tensor]:
    for stage in list(network.stages)[:-1]:
        x = stage(x)
    x = network.stages.last.prepare(x)
    return x, network.stages.last.activity(x)


def _convolution(stage: GatedStage, head: Head, X: Tensor) -> Convolution:
    """The geometry of a stage; where windows of adaptive pooling overlap, pooling is given as a matrix."""
    kernel = stage.hidden.kernel_size[0]
    height, width = X.shape[2:]
    if not (height % head.grid or width % head.grid):
        return Convolution.of(2, kernel, padding=kernel // 2, pooling=head.grid)
    unit = torch.eye(height * width, dtype=torch.float64, device=X.device).unflatten(1, (height, width))
    pooling = torch.nn.functional.adaptive_avg_pool2d(unit[:, None], head.grid).flatten(1).T.contiguous()
    return Convolution.of(2, kernel, padding=kernel // 2, pooling=pooling)
