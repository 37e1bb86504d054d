"""Packages that a fit does not need: which extra installs them, and one sentence where they are missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NamedTuple


class Extra(NamedTuple):
    """What a package is for, and the name in ``pip install 'bidual[name]'``."""

    use: str
    name: str


EXTRAS = {
    "dask": Extra("A Dask scheduler", "dask"),
    "jinja2": Extra("A report", "report"),
    "markdown_it": Extra("A report", "report"),
    "matplotlib": Extra("A figure or report", "report"),
    "onnx": Extra("An ONNX file", "onnx"),
    "onnxscript": Extra("ONNX export", "onnx"),
    "pandas": Extra("A table", "cli"),
    "PIL": Extra("A folder of images", "images"),
    "platformdirs": Extra("The cache of data sets", "images"),
    "pooch": Extra("A download", "images"),
    "pyarrow": Extra("A Parquet file", "cli"),
    "rich": Extra("A display of progress", "cli"),
    "typer": Extra("The command line", "cli"),
}


class MissingExtra(ImportError):
    """A package is needed that is not installed."""


@contextmanager
def extra(package: str) -> Iterator[None]:
    """Around an import of ``package``, a key of ``EXTRAS``: where it is missing, the error names what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        use, name = EXTRAS[package]
        raise MissingExtra(f"{use} needs {package}; install bidual[{name}].", name=package) from error


def need(*packages: str) -> None:
    """Raise :class:`MissingExtra` unless the packages can be imported; to be called before any work."""
    for package in packages:
        with extra(package):
            import_module(package)
