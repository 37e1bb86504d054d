"""How a valid file goes wrong: at random bytes, and within the JSON, safetensors and zip that it is made of."""

import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

_ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        2**31,
        2**63,
        -(2**63),
        10**30,
        1e308,
        0.5,
        -0.5,
        1e-300,
        "",
        "x",
        "nan",
        "inf",
    ),
    *(float("nan"), float("inf"), [], {}, [1], [[1, 2]], [None], {"a": 1}, "a" * 300, "\0", "é", [0] * 50, "cuda:7"),
    *(
        {"tensor": "x"},
        {"array": "x"},
        {"tuple": [10**9]},
        {"loss": "x", "settings": {}},
        {"part": "record", "settings": {"seconds": "x"}},
        {"solver": "fista", "settings": {}},
        {"values": [1], "dtype": "O"},
    ),
)
_PIECES = (
    b"\0",
    b"\xff",
    b"{",
    b"}",
    b'"',
    b",",
    b"\n",
    b"9" * 30,
    b"[" * 3000,
    b"\x7f\xff\xff\xff",
    b"\x80\x02c",
    b"e9",
)


def bytes_changed(data: bytes, rng: random.Random) -> bytes:
    """Some bytes flipped, cut off, repeated, moved or put in."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, length = rng.randrange(len(raw) + 1), rng.choice((1, 1, 2, 4, 8, 30))
        kind = rng.randrange(6)
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del raw[at : at + length]
        elif kind == 2:
            raw[at:at] = raw[at : at + length] * rng.choice((1, 3))
        elif kind == 3:
            raw[at : at + length] = rng.randbytes(length)
        elif kind == 4:
            raw[at:at] = rng.choice(_PIECES)
        else:
            del raw[at:]
    return bytes(raw)


def value_changed(value: Any, rng: random.Random) -> Any:
    """A JSON value with something in it replaced, removed, repeated or nested deeply."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = rng.choice(keys)
        changed = dict(value) if isinstance(value, dict) else list(value)
        if rng.random() < 0.15:
            del changed[key]
        else:
            changed[key] = value_changed(value[key], rng)
        return changed
    if isinstance(value, str) and value.startswith(("{", "[")) and rng.random() < 0.9:
        return json_changed(value.encode("utf-8", "replace"), rng).decode("utf-8", "replace")
    kind = rng.randrange(12)
    if kind == 0:
        return [value] * rng.choice((2, 100))
    if kind == 1 and isinstance(value, (int, float)) and not isinstance(value, bool):
        return value * rng.choice((2, -1, 1000, 10**12))
    return rng.choice(_ODD)


def json_changed(data: bytes, rng: random.Random) -> bytes:
    """A JSON text with a change in its values, or in its bytes."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return bytes_changed(data, rng)
    for _ in range(rng.choice((1, 1, 1, 3))):
        value = value_changed(value, rng)
    text = json.dumps(value)
    if rng.random() < 0.03:
        text = text.replace("1", "[" * 20_000, 1)
    return text.encode()


def safetensors_changed(data: bytes, rng: random.Random) -> bytes:
    """A change in the header; the tensors stay, and the length of the header is right."""
    length = int.from_bytes(data[:8], "little")
    if rng.random() < 0.15 or not 2 <= length <= len(data) - 8:
        return bytes_changed(data, rng)
    header = json_changed(data[8 : 8 + length], rng)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def zip_changed(data: bytes, rng: random.Random) -> bytes:
    """A change in one member of a zip file, in its name, or in how it is packed."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as source:
            members = {info.filename: source.read(info) for info in source.infolist()}
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, EOFError, ValueError):
        return bytes_changed(data, rng)
    if rng.random() < 0.15 or not members:
        return bytes_changed(data, rng)
    name = rng.choice([*members, *(n for n in members if n.endswith(".json"))])
    change = json_changed if name.endswith(".json") else bytes_changed
    changed = change(members.pop(name), rng)
    name = bytes_changed(name.encode(), rng).decode("latin-1") if rng.random() < 0.05 else name
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as target:
        for member, content in (members | {name: changed}).items():
            packed = zipfile.ZIP_DEFLATED if rng.random() < 0.02 else zipfile.ZIP_STORED
            target.writestr(member.replace("\0", "0") or "x", content, packed)
    return sink.getvalue()
