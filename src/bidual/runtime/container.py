"""Tensors with a JSON header in one safetensors file, for models and checkpoints. Nothing is ever unpickled."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar

import safetensors
import safetensors.torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from bidual.runtime.files import write_atomically
from bidual.runtime.json_text import one_line, parse_json, validated
from bidual.runtime.registry import UnknownNameError

Tensors = dict[str, Tensor]
_KEY = "bidual"  # in the metadata of safetensors
_OLD_KEYS = {"bidual-checkpoint": "checkpoint", "bidual-distributed": "checkpoint of a distributed fit"}  # of format 1
_BROKEN = (safetensors.SafetensorError, OSError, ValueError, RuntimeError)
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError, ArithmeticError, OSError)


class UnreadableFileError(ValueError):
    """A file that cannot be used; the message gives the reason in one sentence."""


class Header(BaseModel):
    """What a header must look like: exactly the fields of a subclass, of their types."""

    model_config = ConfigDict(extra="forbid")


H = TypeVar("H", bound=Header)


@dataclass(frozen=True)
class Container(Generic[H]):
    """One kind of file."""

    kind: str  # what a file of this kind is called
    format: int  # its version; files of another one are refused
    header: type[H]
    remedy: str  # what to do about a file that cannot be read

    def write(self, path: str | os.PathLike[str], header: H, tensors: Tensors) -> None:
        """Replace the file as a whole; a failure leaves the old one."""
        write_atomically(path, self.to_bytes(header, tensors))

    def to_bytes(self, header: H, tensors: Tensors) -> bytes:
        """The content of such a file."""
        about = {"kind": self.kind, "format": self.format, "version": version("bidual"), "header": header.model_dump()}
        held: Tensors = {}
        for name, tensor in tensors.items():
            plain = tensor.detach().cpu().contiguous()
            shared = any(plain.data_ptr() == other.data_ptr() for other in held.values())  # which safetensors refuses
            held[name] = plain.clone() if shared else plain
        return safetensors.torch.save(held, metadata={_KEY: json.dumps(about)})

    def read(self, path: str | os.PathLike[str]) -> tuple[H, Tensors]:
        """Header and tensors of a file; :class:`UnreadableFileError` if it is not of this kind and format."""
        if not Path(path).is_file():
            what = "it is a folder" if Path(path).is_dir() else "there is no such file"
            raise UnreadableFileError(f"cannot read {path}: {what}; give the path of a {self.kind} of bidual.")
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
        except _BROKEN as error:
            raise self._cut_off(path, error) from error
        return self._header(metadata, path), tensors

    def from_bytes(self, data: bytes, source: str) -> tuple[H, Tensors]:
        """Like :meth:`read`, of the content of a file; ``source`` names it in messages."""
        try:
            tensors = safetensors.torch.load(data)  # the file begins with the length of its own header in eight bytes
            metadata = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
        except _BROKEN as error:
            raise self._cut_off(source, error) from error
        return self._header(metadata, source), tensors

    @contextmanager
    def reading(self, path: object) -> Iterator[None]:
        """Errors inside are the file's fault: one sentence names the file."""
        try:
            yield
        except UnreadableFileError:
            raise
        except UnknownNameError as error:
            raise UnreadableFileError(
                f"cannot read {path}: {error}; if it is a class of your own, import the module that defines it first."
            ) from error
        except _DAMAGE as error:
            raise UnreadableFileError(
                f"{path} is a damaged {self.kind} file ({one_line(error)}); {self.remedy}."
            ) from error

    def _header(self, metadata: dict[str, Any], path: object) -> H:
        try:
            key = next((old for old in _OLD_KEYS if old in metadata), _KEY)
            about = parse_json(metadata[key])
            kind, found = about.get("kind", _OLD_KEYS.get(key, "model")), about["format"]  # format 1 named no kind
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableFileError(
                f"{path} is a safetensors file, but not a {self.kind} that was saved by bidual."
            ) from error
        if kind != self.kind:
            raise UnreadableFileError(f"{path} is a {str(kind)[:60]} of bidual, not a {self.kind}; give another file.")
        if found != self.format:
            writer = f" (written by bidual {str(about['version'])[:60]})" if "version" in about else ""
            raise UnreadableFileError(
                f"{path} has {self.kind} format {str(found)[:60]}{writer}, this is bidual {version('bidual')} and "
                f"reads format {self.format}; read it with the version that wrote it."
            )
        with self.reading(path):
            return validated(self.header, about["header"], "its header", remedy="")

    def _cut_off(self, path: object, error: Exception) -> UnreadableFileError:
        return UnreadableFileError(
            f"{path} is not a {self.kind} file, or is cut off ({one_line(error)}); {self.remedy}."
        )


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Whether a file is marked as written by this package."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return _KEY in (file.metadata() or {})
    except _BROKEN:
        return False
