"""Data sets: generated ones, official image files, folders of images, and the UCI sets of PR Table 3."""

from bidual.io.datasets.image_folder import load_folder
from bidual.io.datasets.images import ImageData, load_images
from bidual.io.datasets.sources import IMAGE_SOURCES, UCI_NAMES
from bidual.io.datasets.spiral import make_spiral
from bidual.io.datasets.uci import UciData, load_uci

__all__ = [
    "IMAGE_SOURCES",
    "UCI_NAMES",
    "ImageData",
    "UciData",
    "load_folder",
    "load_images",
    "load_uci",
    "make_spiral",
]
