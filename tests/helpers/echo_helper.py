"""A helper process that imports next to nothing."""

import os
import time

import numpy as np

from bidual.runtime.helper_process import reply, requests
from bidual.runtime.shared_arrays import read_arrays


def serve() -> None:
    for words, file in requests():
        print("libraries may print")
        match words:
            case ["square"]:
                x = read_arrays(file)["x"]
                np.square(x, out=x)
                reply("done")
            case ["silent"]:
                time.sleep(600)
            case ["end"]:
                os._exit(3)
            case _:
                reply(" ".join(words))
