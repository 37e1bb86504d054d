"""A convex CNN on digits: one convolution, average pooling, a linear layer, and a proof that it is trained.

1347 of scikit-learn's 8 x 8 digits are learnt by a gated convolutional network, which is a convex program (BM section
3.3): for given gates there is one optimum, and the certificate says how close to it training came. So more gates can be
judged by what they bring, without asking whether training went well. The last network is taken out as a plain torch
module, and the digits that it gets wrong are looked at. `examples/digits_filters.py` draws its filters.

Usage: python examples/digits_cnn.py [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bidual import ConvexCNNClassifier
from bidual.reporting.plots import COLOURS, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically


def main(out: Path, gates: tuple[int, ...] = (1, 3, 10, 30, 100), samples: int | None = None) -> ConvexCNNClassifier:
    # Images as a 4-D array (n, channels, height, width), three quarters of them to train on.
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8) / 16
    train, test, y_train, y_test = train_test_split(images, labels, stratify=labels, random_state=0)
    train, y_train = train[:samples], y_train[:samples]

    # 3 x 3 filters with padding, and more and more random gates. beta is a hundredth of beta_max by default.
    accuracies = []
    for count in gates:
        network = ConvexCNNClassifier(kernel_size=3, padding=1, n_gates=count, tol=1e-4).fit(train, y_train)
        accuracies.append(network.score(test, y_test))
        print(
            f"{count:3d} gates: certified gap {network.certificate_.relative_gap:.0e}, {network.n_neurons_:2d} filters,"
            f" test accuracy {accuracies[-1]:.4f}"
        )

    # The module is plain torch; its decisions are the estimator's.
    with torch.no_grad():
        scores = network.module_(torch.tensor(test)).numpy()
    guesses = network.classes_[scores.argmax(1)]
    print(f"module_ and predict agree on {int((guesses == network.predict(test)).sum())} of {len(test)} digits")

    # What is wrong, the most confident mistakes first.
    wrong = np.flatnonzero(guesses != y_test)
    margin = scores.max(1) - scores[np.arange(len(test)), np.searchsorted(network.classes_, y_test)]
    wrong = wrong[np.argsort(-margin[wrong])]
    print("mistakes (true -> predicted): " + ", ".join(f"{y_test[i]} -> {guesses[i]}" for i in wrong[:4]))

    # Accuracy against gates, and the mistakes.
    figure = new_figure(9, 3.6)
    left, right = figure.subfigures(1, 2, width_ratios=[1.6, 1], wspace=0.03)
    axes = left.subplots()
    axes.plot(gates, accuracies, "o-", color=COLOURS[0])
    axes.set(xscale="log", xlabel="random gates", ylabel="test accuracy", xticks=gates, xticklabels=gates)
    axes.minorticks_off()
    axes.set_title("Every network certified to a gap of 1e-4", loc="left", fontsize=11)
    plain(axes)
    right.suptitle(f"{len(wrong)} of {len(test)} test digits are wrong", fontsize=11)
    grid = right.subplots(2, 2).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, i in zip(grid, wrong, strict=False):
        axes.imshow(test[i, 0], cmap="gray_r")
        axes.set_title(f"{y_test[i]}, taken for {guesses[i]}", fontsize=9)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "digits_cnn.png", figure_bytes(figure, ".png"))
    print(f"figure: {out / 'digits_cnn.png'}")
    return network


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the figure (default: here)")
    main(parser.parse_args().out)
