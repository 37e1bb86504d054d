"""Pick beta on a path: one certified network per weight decay, from nothing to overfitting.

How much weight decay? Bidual knows where to begin: at `beta_max` the optimum is the zero network. From there a path
goes down, each network warm-started at the last and each certified: the only thing that changes along it is beta.

Usage: python examples/pick_beta.py [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import bidual
from bidual import ConvexMLPRegressor, ConvexMLPRegressorCV, regularization_path
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically


def main(out: Path, n_betas: int = 20, n_gates: int = 60) -> tuple[bidual.Path, ConvexMLPRegressorCV]:
    # Ten measurements of 442 patients; half of them are held out to judge by.
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
    scaler, mean, std = StandardScaler().fit(X), y.mean(), y.std()
    X, X_test, y, y_test = scaler.transform(X), scaler.transform(X_test), (y - mean) / std, (y_test - mean) / std

    # The whole path in one call. With fixed gates the program is small at any number of features.
    network = ConvexMLPRegressor(activation="gated_relu", n_gates=n_gates, tol=1e-4)
    path = regularization_path(network, X, y, n_betas=n_betas, ratio=1e-3)
    worst = max(solution.certificate.relative_gap for solution in path.solutions)
    print(f"beta_max {path.beta_max:.4g}; {n_betas} networks, certified relative gaps at most {worst:.1e}")

    # Train and test error of each: the modules are plain torch modules.
    train = 2 * np.array(path.losses) / len(y)
    with torch.no_grad():
        guesses = [module(torch.tensor(X_test)).numpy().ravel() for module in path.modules]
    test = np.array([np.mean((guess - y_test) ** 2) for guess in guesses])
    for k in range(0, n_betas, max(n_betas // 6, 1)):
        print(
            f"beta/beta_max {path.betas[k] / path.beta_max:7.4f}: {path.n_neurons[k]:3d} neurons, "
            f"mean squared error {train[k]:.3f} on the training half, {test[k]:.3f} on the other"
        )

    # In practice there are no test labels: cross-validation picks beta from the training half alone.
    chosen = ConvexMLPRegressorCV(activation="gated_relu", n_gates=n_gates, betas=path.betas[1:], tol=1e-4).fit(X, y)
    error = float(np.mean((chosen.predict(X_test) - y_test) ** 2))
    best = int(np.argmin(test))
    print(f"cross-validation picks beta/beta_max {chosen.beta_ / path.beta_max:.4f}: test error {error:.3f}")
    print(f"the best on the path has {path.betas[best] / path.beta_max:.4f}: test error {test[best]:.3f}")

    # Errors above, sizes below.
    figure = new_figure(7, 4.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1.7, 1])
    betas = np.array(path.betas) / path.beta_max
    above.plot(betas, train, "o-", markersize=4, color=COLOURS[0], label="training half")
    above.plot(betas, test, "o-", markersize=4, color=COLOURS[1], label="test half")
    below.plot(betas, path.n_neurons, "o-", markersize=4, color=COLOURS[2])
    for axes in (above, below):
        axes.axvline(chosen.beta_ / path.beta_max, color=GREY, linestyle="--", label="cross-validation's choice")
        axes.set(xscale="log")
        axes.set_ylim(bottom=0)
        plain(axes)
    above.set_ylabel("mean squared error")
    above.legend(frameon=False, fontsize=9)
    below.set(xlabel="weight decay beta / beta_max", ylabel="neurons")
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "pick_beta.png", figure_bytes(figure, ".png"))
    print(f"figure: {out / 'pick_beta.png'}")
    return path, chosen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the figure (default: here)")
    main(parser.parse_args().out)
