from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bidual.io.datasets import load_folder

RNG = np.random.default_rng(0)


def picture(path: Path, h: int = 5, w: int = 4, mode: str = "L") -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, (h, w) if mode == "L" else (h, w, len(mode)), dtype=np.uint8)
    Image.fromarray(pixels, mode).save(path)
    return pixels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten cats and five dogs, grey."""
    for name, n in (("dog", 5), ("cat", 10)):
        for k in range(n):
            picture(tmp_path / "pets" / name / f"{k:02}.png")
    return tmp_path / "pets"


def test_classes_are_sorted_and_split_by_class(folder: Path) -> None:
    data = load_folder(folder)
    assert (data.name, data.classes, data.size, data.note) == ("pets", ("cat", "dog"), (1, 5, 4), "")
    assert np.bincount(data.train_labels).tolist() == [8, 4]
    assert np.bincount(data.test_labels).tolist() == [2, 1]
    both = np.concatenate([data.train_images, data.test_images])
    assert len(np.unique(both.reshape(15, -1), axis=0)) == 15


def test_the_split_depends_on_the_seed_only(folder: Path) -> None:
    one, two, other = (load_folder(folder, seed=seed).test_images for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_pixels_come_back(tmp_path: Path) -> None:
    pixels = picture(tmp_path / "a/x.png", mode="RGB")
    data = load_folder(tmp_path, test_fraction=0)
    np.testing.assert_array_equal(data.train_images[0], pixels.transpose(2, 0, 1))
    assert data.test_images.shape == (0, 3, 5, 4)


def test_train_and_test_folders(tmp_path: Path) -> None:
    for part, n in (("train", 3), ("test", 2)):
        for name in ("a", "b"):
            for k in range(n):
                picture(tmp_path / part / name / f"{k}.bmp")
    data = load_folder(tmp_path)
    assert data.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test_labels.tolist() == [0, 0, 1, 1]
    picture(tmp_path / "test/c/x.png")
    with pytest.raises(ValueError, match=r"the class 'c' of .* is in test and not in train"):
        load_folder(tmp_path)
    (tmp_path / "valid").mkdir()
    with pytest.raises(ValueError, match="holds train and test, and valid beside them"):
        load_folder(tmp_path)


def test_train_may_be_a_class(tmp_path: Path) -> None:
    for name in ("bus", "test", "train"):
        picture(tmp_path / name / "x.png")
    assert load_folder(tmp_path, test_fraction=0).classes == ("bus", "test", "train")


@pytest.mark.parametrize("suffix", ["png", "JPG", "jpeg", "bmp", "gif", "webp", "ppm"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    picture(tmp_path / f"a/x.{suffix}", mode="RGB")
    assert load_folder(tmp_path, test_fraction=0).size == (3, 5, 4)


def test_grey_among_colours_becomes_rgb(tmp_path: Path) -> None:
    grey = picture(tmp_path / "a/x.pgm")
    picture(tmp_path / "b/x.png", mode="RGB")
    data = load_folder(tmp_path, test_fraction=0)
    np.testing.assert_array_equal(data.train_images[0], np.stack([grey] * 3))


def test_unequal_sizes_are_named(tmp_path: Path) -> None:
    picture(tmp_path / "a/one.png")
    picture(tmp_path / "b/two.png", h=7)
    with pytest.raises(ValueError, match=r"one\.png is 5 x 4 and .*two\.png is 7 x 4 \(height x width\); resize"):
        load_folder(tmp_path, test_fraction=0)
    assert load_folder(tmp_path, size=(6, 3), test_fraction=0).train_images.shape == (2, 1, 6, 3)


def test_exif_turns(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (4, 5)).save(tmp_path / "a/x.jpg", exif=exif)
    assert load_folder(tmp_path, test_fraction=0).size == (3, 4, 5)


def test_hidden_files_are_ignored(folder: Path) -> None:
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "cat/.hidden.txt").write_bytes(b"x")
    (folder / ".git").mkdir()
    assert load_folder(folder).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("cat/notes.txt", b"x", r"notes\.txt is no image that is read"),
        ("cat/fake.png", b"x", r"fake\.png is no image that can be read"),
        ("README.md", b"x", r"README\.md lies beside the folders"),
        ("cat/more/x.png", b"x", "more is a folder within that of a class"),
    ],
)
def test_other_files_are_refused_by_name(folder: Path, name: str, raw: bytes, message: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        load_folder(folder)


def test_a_truncated_image_is_refused(tmp_path: Path) -> None:
    picture(tmp_path / "a/x.png", 40, 40)
    path = tmp_path / "a/x.png"
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ValueError, match=r"x\.png is no image that can be read"):
        load_folder(tmp_path, test_fraction=0)


def test_pixels_that_are_no_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    deep = tmp_path / "a/deep.png"
    Image.fromarray(np.full((3, 3), 60_000, np.uint16)).save(deep)
    with pytest.raises(ValueError, match=r"deep\.png is of mode I;16, and only images of 8 bits"):
        load_folder(tmp_path, test_fraction=0)
    picture(deep, mode="RGBA")
    with pytest.raises(ValueError, match=r"deep\.png has transparent pixels"):
        load_folder(tmp_path, test_fraction=0)
    Image.new("RGBA", (3, 3), (1, 2, 3, 255)).save(deep)
    assert load_folder(tmp_path, test_fraction=0).train_images[0, :, 0, 0].tolist() == [1, 2, 3]


def test_animations_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    frames = [Image.new("RGB", (3, 3), (shade, 0, 0)) for shade in (0, 100, 200)]
    frames[0].save(tmp_path / "a/x.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(ValueError, match=r"x\.gif has 3 frames"):
        load_folder(tmp_path, test_fraction=0)


def test_folders_without_images(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        load_folder(tmp_path / "no")
    with pytest.raises(ValueError, match="has no subfolders"):
        load_folder(tmp_path)
    picture(tmp_path / "a/x.png")
    with pytest.raises(ValueError, match="the class 'a' has one image"):
        load_folder(tmp_path)
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"the class 'b' of .* has no images"):
        load_folder(tmp_path)


@pytest.mark.parametrize("bad", [{"test_fraction": 1.0}, {"test_fraction": -0.1}, {"size": (0, 3)}, {"size": (3,)}])
def test_settings(folder: Path, bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        load_folder(folder, **bad)  # type: ignore[arg-type]
