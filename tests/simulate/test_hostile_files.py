"""Files in HDF5 that end the process, or bring in other files, where the netCDF library
reads them: refused in one line, sealed as ours or not.

Each is read in a process of its own. Without the inspection, netCDF4 1.7.5 ends it
(numbers of 2 and 16 bytes, a group with two names) or returns bytes of another file
(external storage). What no test here sees: files on which the HDF5 library itself
loops; random flips of bits make some.
"""

import h5py
import numpy as np
import pytest
import xarray as xr

from simulate.store import runs
from theory.call.refusal import ParameterError
from theory.runtime import hdf5, sealed

OTHER = "secret.bin"


def external(file, folder):
    file.create_dataset("y", (8,), "u1", external=[(str(folder / OTHER), 0, 8)])


def virtual(file, folder):
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "x", (3,))
    file.create_virtual_dataset("y", layout)


def hard(file, folder):
    group = file.create_group("g")
    group["again"] = file["h"] = group


def types(kind):
    def make(file, folder):
        file.create_dataset("y", data=np.zeros(3, kind))

    return make


def attribute(kind):
    def make(file, folder):
        file["x"].attrs["long_name"] = np.zeros(3, kind)

    return make


def empty(file, folder):
    file["y"] = h5py.Empty("f8")
    file["y"].make_scale("y")


def axes(file):
    """An array without its list of axes."""
    del file["x"].attrs["DIMENSION_LIST"]
    return file["x"]


HOSTILE = {
    "external storage": external,
    "virtual array": virtual,
    "group of two names": hard,
    "array of two names": lambda file, folder: file.__setitem__("y", file["x"]),
    "external link": lambda f, folder: f.__setitem__(
        "y", h5py.ExternalLink(str(folder / OTHER), "/x")
    ),
    "soft link": lambda f, folder: f.__setitem__("y", h5py.SoftLink("/x")),
    "group": lambda file, folder: file.create_group("y"),
    "named type": lambda file, folder: file.__setitem__("y", np.dtype("f8")),
    "unknown filter": lambda file, folder: file.create_dataset(
        "y", (9,), "f8", compression="lzf"
    ),
    **{f"numbers {kind}": types(kind) for kind in ("f2", "g", "c8", "c16")},
    **{f"attribute {kind}": attribute(kind) for kind in ("f2", "g", "c16")},
    "compound": types([("a", "f8"), ("b", "i4")]),
    "enumeration": types(bool),
    "array without values": empty,
    "no list of axes": (
        lambda file, folder: axes(file).attrs.__setitem__("DIMENSION_LIST", 1)
    ),
    "more than fits": lambda file, folder: file.create_dataset(
        "y", (10**12,), "f8", chunks=(1000,), compression="gzip"
    ),
    "root attribute": lambda file, folder: file.attrs.__setitem__(
        "odd", np.zeros(2, "f2")
    ),
}


@pytest.fixture
def plain(tmp_path):
    runs.write(
        xr.Dataset(
            {"x": ("t", np.arange(3.0))}, {"name": ("t", ["a", "b", "c"])}, {"n": 1}
        ),
        tmp_path / "a.nc",
    )
    return tmp_path / "a.nc"


def test_what_is_written_here_is_plain(plain):
    hdf5.inspect(sealed.unseal(plain))


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line(kind, plain, forked):
    (plain.parent / OTHER).write_bytes(b"secrets!")
    raw = plain.with_name("raw.h5")
    raw.write_bytes(sealed.unseal(plain))
    with h5py.File(raw, "a") as file:
        HOSTILE[kind](file, plain.parent)
    sealed.seal(plain, raw.read_bytes())

    def read():
        try:
            print(runs.read(plain))
        except ParameterError as error:
            print("refused", error)

    done = forked(read)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"refused {plain}: ") and done.stdout.count("\n") == 1


@pytest.mark.parametrize("end", [8, 9, 100, 1000, -1000])
def test_what_is_cut_short_is_refused_in_one_line(end, plain):
    """Sealed again, so that only the inspection is left."""
    sealed.seal(plain, sealed.unseal(plain)[:end])
    # as the version of HDF5 sees it
    lost = r"a\.nc: (damaged \(|a netCDF file, but not a run)"
    with pytest.raises(ParameterError, match=lost) as caught:
        runs.read(plain)
    assert "\n" not in str(caught.value)


def test_lists_whose_sizes_do_not_add_up_are_refused(plain, forked):
    """Over one of them the library went on for ever."""
    content = bytearray(sealed.unseal(plain))
    heap = content.find(hdf5.HEAP)
    sizes = [
        heap + 8,
        *(heap + 24 + 24 * k for k in range(4)),
    ]  # of the whole, and of its parts
    assert heap > 0

    def read():
        for at in sizes:
            for byte in range(8):
                damaged = content.copy()
                damaged[at + byte] ^= 4
                try:
                    hdf5.inspect(bytes(damaged))
                    sealed.seal(plain, bytes(damaged))
                    runs.read(plain)
                except ParameterError:
                    print("refused")

    done = forked(read)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("refused") > 30
