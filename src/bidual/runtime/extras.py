"""Packages that a fit does not need: which extra installs them, and one sentence where they are missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

EXTRAS = {  # by package: what needs it, and the name in pip install 'bidual[name]'
    "dask": ("A Dask scheduler", "dask"),
    "jinja2": ("A report", "report"),
    "markdown_it": ("A report", "report"),
    "matplotlib": ("A figure or report", "report"),
    "onnx": ("An ONNX file", "onnx"),
    "onnxscript": ("ONNX export", "onnx"),
    "pandas": ("A table", "cli"),
    "PIL": ("A folder of images", "images"),
    "platformdirs": ("The cache of data sets", "images"),
    "pooch": ("A download", "images"),
    "pyarrow": ("A Parquet file", "cli"),
    "rich": ("A display of progress", "cli"),
    "typer": ("The command line", "cli"),
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
