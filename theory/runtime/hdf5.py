"""Which HDF5 files are read: plain arrays of numbers and words, all in the file."""

import struct
from typing import Any

from h5py import h5a, h5d, h5f, h5g, h5l, h5o, h5s, h5t, h5z

from theory.call.refusal import ParameterError, error_summary
from theory.runtime import memory

FILTERS = (h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32)
NUMBERS = {
    getattr(h5t, name).encode()
    for name in dir(h5t)
    if name.startswith(("IEEE_F32", "IEEE_F64", "STD_I", "STD_U"))
    and name.endswith(("LE", "BE"))
}
PACKED = 1100  # largest expansion by zlib, 1032, and a margin
DIMENSIONS = {  # references by which arrays share an axis
    b"DIMENSION_LIST": h5t.VLEN,
    b"REFERENCE_LIST": h5t.COMPOUND,
}
# a collection of lists and words: its size, then number, size of each
HEAP = b"GCOL\1\0\0\0"


def inspect(content: bytes) -> int:
    """Refuse a file that the netCDF library cannot be trusted with: at numbers of
    unusual size and groups with two names it ends the process, and links and arrays may
    make it read other files.

    Returns
    -------
    int
        Bytes of the arrays.

    Raises
    ------
    ParameterError
        Naming what is not plain, or if arrays are larger than can be packed into the
        file. Files that are not HDF5 pass.
    """
    size = 0
    if not content.startswith(b"\x89HDF\r\n\x1a\n"):
        return size
    try:
        _heaps(content)
        root = h5g.open(h5f.open_file_image(content), b"/")
        _attributes(root)
        for name in root:
            word = name.decode(errors="replace")
            if root.links.get_info(name).type != h5l.TYPE_HARD:
                raise ParameterError(f"{word} is a link")
            node = h5o.open(root, name)
            if not isinstance(node, h5d.DatasetID) or h5o.get_info(node).rc != 1:
                raise ParameterError(f"{word} is no array of its own")
            size += _array(word, node)
            _attributes(node)
    except ParameterError:
        raise
    except Exception as error:  # h5py raises various errors for what it cannot read
        raise ParameterError(f"damaged ({error_summary(error)})") from None
    if size > max(PACKED * len(content), memory.NEGLIGIBLE_BYTES):
        raise ParameterError(
            f"says that its {memory.amount(len(content))} hold {memory.amount(size)}, "
            "more than can be packed into them"
        )
    return size


def _heaps(content: bytes) -> None:
    """Refuse sizes of lists and words that do not add up, on which the library may
    never end.
    """
    at = content.find(HEAP)
    while at >= 0:
        place, end = at + 16, at + struct.unpack_from("<Q", content, at + 8)[0]
        while place + 16 <= end:
            number, size = struct.unpack_from("<H6xQ", content, place)
            step = (
                16 + -(-size // 8) * 8 if number else size
            )  # number 0: the rest, with its head
            place += step or end  # no step is no rest
        if not place <= end <= len(content):
            raise ValueError("lists do not fit into their place")
        at = content.find(HEAP, end)


def _array(name: str, array: h5d.DatasetID) -> int:
    """Check an array; returns its bytes."""
    made = array.get_create_plist()
    filters = {made.get_filter(k)[0] for k in range(made.get_nfilters())}
    if made.get_external_count() or made.get_layout() == h5d.VIRTUAL:
        raise ParameterError(f"{name} is kept in another file")
    if not filters <= {*FILTERS}:
        raise ParameterError(f"{name} is packed by a filter that is not known here")
    _plain(name, array)
    return array.get_space().get_simple_extent_npoints() * array.get_type().get_size()


def _attributes(node: Any) -> None:
    for k in range(h5a.get_num_attrs(node)):
        attribute = h5a.open(node, index=k)
        name, known = (
            attribute.name.decode(errors="replace"),
            DIMENSIONS.get(attribute.name),
        )
        if known is None:
            _plain(name, attribute)
        elif attribute.get_type().get_class() != known:
            raise ParameterError(f"{name} is no list of axes")


def _plain(name: str, values: Any) -> None:
    kind = values.get_type()
    if values.get_space().get_simple_extent_type() == h5s.NULL:
        raise ParameterError(f"{name} has no values")
    if not isinstance(kind, h5t.TypeStringID) and kind.encode() not in NUMBERS:
        raise ParameterError(
            f"{name} has values that are neither ordinary numbers nor words"
        )
