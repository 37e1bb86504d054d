"""Data sets: generated ones, official image files and folders of images."""

from bidual.io.datasets.image_folder import load_folder
from bidual.io.datasets.images import ImageData, load_images
from bidual.io.datasets.sources import IMAGE_SOURCES
from bidual.io.datasets.spiral import make_spiral

__all__ = [
    "IMAGE_SOURCES",
    "ImageData",
    "load_folder",
    "load_images",
    "make_spiral",
]
