"""The data sets that are known by name, read from local copies."""

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from vcdl.data import cifar10, digits, facts_of, fashion_mnist, load_dataset
from vcdl.data.class_weights import with_class_weights
from vcdl.data.rows import in_memory
from vcdl.errors import DataError
from vcdl.job.data import DataSettings
from vcdl.testing.sources import SourceContract

pytestmark = [pytest.mark.process, pytest.mark.keras]

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
needs_fashion_mnist = pytest.mark.skipif(not DEBIAN.exists(), reason="dataset-fashion-mnist is not installed")


@needs_fashion_mnist
def test_fashion_mnist_has_its_published_shape_and_an_even_class_mix() -> None:
    dataset = load_dataset(DataSettings(dataset="fashion-mnist"), seed=1)
    assert dataset.x_train.shape == (54_000, 28, 28, 1)
    assert dataset.x_train.dtype == np.uint8
    assert dataset.x_test is not None
    assert dataset.x_test.shape == (10_000, 28, 28, 1)
    assert np.bincount(dataset.y_val).tolist() == [600] * 10
    assert dataset.classes is not None
    assert dataset.classes.names[:2] == ("T-shirt", "trouser")
    own = load_dataset(DataSettings(dataset="fashion-mnist", classes=10), seed=1)
    assert own.classes is not None
    assert own.classes.names == ()


@needs_fashion_mnist
@pytest.mark.parametrize("damage", ["another image", "cut short", "not gzip", "missing"])
def test_a_damaged_copy_of_fashion_mnist_is_refused(damage: str, tmp_path: Path) -> None:
    for file in DEBIAN.iterdir():
        (tmp_path / file.name).symlink_to(file)
    victim = tmp_path / "t10k-images-idx3-ubyte.gz"
    content = bytearray(gzip.decompress(victim.read_bytes()))
    victim.unlink()
    if damage == "another image":
        content[1000] ^= 1
        victim.write_bytes(gzip.compress(bytes(content), 1))
    elif damage == "cut short":
        victim.write_bytes(gzip.compress(bytes(content), 1)[:5000])
    elif damage == "not gzip":
        victim.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="again") as caught:
        fashion_mnist.load(tmp_path)
    assert "dataset-fashion-mnist" in str(caught.value), "it says where to get it"


class TestDigits(SourceContract):
    """The contract, as scikit-learn has them."""

    source = digits


@needs_fashion_mnist
class TestFashionMnist(SourceContract):
    """The contract, as Debian has it."""

    source = fashion_mnist
    local = DEBIAN


def test_without_scikit_learn_the_extra_of_the_digits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError, match=r"scikit-learn, which is not installed: pip install 'vcdl\[digits\]'"):
        digits.load(None)


def test_the_digits_have_a_test_set_that_no_seed_changes() -> None:
    first = load_dataset(DataSettings(dataset="digits"), seed=1)
    second = load_dataset(DataSettings(dataset="digits"), seed=2)
    assert first.x_test is not None
    np.testing.assert_array_equal(first.x_test, second.x_test)
    assert not np.array_equal(in_memory(first.x_val), in_memory(second.x_val))
    assert int(in_memory(first.x_train).max()) == 16


@pytest.mark.parametrize("name", ["digits", pytest.param("fashion-mnist", marks=needs_fashion_mnist)])
def test_what_is_said_of_a_named_set_is_true(name: str) -> None:
    data = DataSettings.model_validate({"dataset": name, "validation": 0.2})
    dataset, facts = load_dataset(data, seed=1), facts_of(data)
    assert facts.input_shape == dataset.input_shape
    assert facts.outputs == dataset.outputs
    assert (facts.train_samples, facts.val_samples) == (len(in_memory(dataset.x_train)), len(in_memory(dataset.x_val)))
    assert dataset.x_test is not None
    assert facts.test_samples == len(dataset.x_test)
    assert facts.sample_bytes == in_memory(dataset.x_train)[0].nbytes + dataset.y_train[:1].nbytes


def test_cifar10_is_read_from_its_binary_archive_and_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = make_batches()
    archive = tmp_path / "archive" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    pack(archive, batches)
    unpacked = tmp_path / "folder" / "cifar-10-batches-bin"
    unpacked.mkdir(parents=True)
    for name, content in batches.items():
        (unpacked / name).write_bytes(content)
    # Given small batches in place of the published 160 MB, and their sums in place of the published ones
    monkeypatch.setattr(cifar10, "_ARCHIVE_SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    monkeypatch.setattr(cifar10, "_MD5", {name: hashlib.md5(content).hexdigest() for name, content in batches.items()})

    for local in (archive.parent, unpacked.parent):
        source = cifar10.load(local)
        assert source.train.x.shape == (20, 32, 32, 3)
        assert source.train.y.tolist() == list(range(20)), "batches in their order"
        assert source.test is not None
        assert source.test.y.tolist() == [20, 21, 22, 23]


def test_a_cifar10_archive_with_another_checksum_is_refused(tmp_path: Path) -> None:
    pack(tmp_path / "cifar-10-binary.tar.gz", make_batches())
    with pytest.raises(DataError, match=r"checksum is not CIFAR-10's; delete it and put cifar-10-binary\.tar\.gz"):
        cifar10.load(tmp_path)


def test_importing_the_data_package_loads_nothing_heavy() -> None:
    heavy = "{'keras', 'tensorflow', 'sklearn', 'pandas', 'pydantic'}"
    script = f"import sys, vcdl.data, vcdl.wire.normalise; sys.exit(str({heavy} & set(sys.modules) or '') or 0)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def make_batches() -> dict[str, bytes]:
    """Six batches of four images; the n-th image is all n, with label n."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    return {
        name: b"".join(bytes([n]) * 3073 for n in range(4 * index, 4 * index + 4)) for index, name in enumerate(names)
    }


def pack(path: Path, batches: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@needs_fashion_mnist
def test_a_class_with_a_name_is_weighed_by_it_or_by_its_number() -> None:
    dataset = load_dataset(DataSettings(dataset="fashion-mnist"), seed=1)
    by_name, by_number = (with_class_weights(dataset, {key: 2.0}).weights_train for key in ("dress", "3"))
    assert by_name is not None
    assert by_number is not None
    assert set(by_name[dataset.y_train == 3]) == {2.0}
    assert set(by_name[dataset.y_train != 3]) == {1.0}
    assert np.array_equal(by_name, by_number)
