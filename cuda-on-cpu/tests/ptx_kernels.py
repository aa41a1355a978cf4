"""Small PTX kernels for tests, one thread a row of operands; values at the edges of types."""

import itertools

import numpy as np
from programs import CACHE

from cuda_on_cpu.run import Allocation, Program, View

DTYPES = {f"{sign}{8 * n}": np.dtype(f"u{n}") for sign in "ub" for n in (1, 2, 4, 8)}
DTYPES |= {f"s{8 * n}": np.dtype(f"i{n}") for n in (1, 2, 4, 8)}
DTYPES |= {f"f{8 * n}": np.dtype(f"f{n}") for n in (2, 4, 8)} | {"pred": np.dtype(bool)}
FLOATS = ("f16", "f32", "f64")
ORDERS = ("forward", "reverse", "random")


def run_text(ptx, arrays, more=(), grid=(1,), block=(1,), order="forward"):
    """Launch the kernel k, whose parameters are the addresses of arrays, then bytes.

    All arrays are marked as written.
    """
    views = []
    for k, array in enumerate(arrays):
        allocation = Allocation.at(array.ctypes.data, array.nbytes, array.itemsize)
        views.append(View(allocation, 0, array.nbytes, f"array {k}"))
        views[-1].wrote()
    parameters = [np.uint64(array.ctypes.data).tobytes() for array in arrays]
    return Program(ptx, CACHE).kernel("k").launch(grid, block, [*parameters, *more], views, order)


def text_of(body, n_parameters, before=""):
    """A module with one kernel, k. Parameters are 64 bits each: %a0, %a1, ... hold them."""
    names = ", ".join(f".param .u64 p{k}" for k in range(n_parameters))
    loads = "\n".join(f"ld.param.u64 %a{k}, [p{k}];" for k in range(n_parameters))
    return (
        f".version 7.0\n.target sm_75\n.address_size 64\n{before}\n.visible .entry k({names}) {{\n"
        f".reg .b64 %a<{n_parameters}>;\n{loads}\n{body}\nret;\n}}\n"
    )


def run_body(body, *arrays, before="", **how):
    """Launch a kernel of these statements: %a0, %a1, ... are the addresses of arrays."""
    return run_text(text_of(body, len(arrays), before), arrays, **how)


def indexed(*sizes):
    """Move %a0, %a1, ... to the thread's element, of so many bytes each."""
    lines = [".reg .b32 %i;", "mov.u32 %i, %tid.x;"]
    lines += [f"mad.wide.u32 %a{k}, %i, {size}, %a{k};" for k, size in enumerate(sizes)]
    return "\n".join(lines) + "\n"


def compute(codes, operands, results, columns):
    """What each piece of code makes of rows of operands: an array each.

    codes: statements that read %x0, %x1, ... and write {y}; %t is theirs, of the first operand's
    type. operands, results: types of registers. columns: the operands' values.
    """
    n = len(columns[0])
    arrays = [
        np.array(column, DTYPES[kind]) for column, kind in zip(columns, operands, strict=True)
    ]
    arrays += [np.zeros(n, DTYPES[kind]) for kind in results]
    names = [f"%x{k}" for k in range(len(operands))] + [f"%y{k}" for k in range(len(results))]
    kinds = (*operands, *results)
    body = [f".reg .{kind} {name};" for kind, name in zip(kinds, names, strict=True)]
    body += [f".reg .{operands[0]} %t; .reg .b16 %h; .reg .b32 %i;", "mov.u32 %i, %ctaid.x;"]
    for k, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        body.append(f"mad.wide.u32 %a{k}, %i, {DTYPES[kind].itemsize}, %a{k};")
        if k < len(operands):
            body += loaded(name, kind, k)
    for code, name in zip(codes, names[len(operands) :], strict=True):
        body.append(code.format(y=name))
    for k, (name, kind) in list(enumerate(zip(names, kinds, strict=True)))[len(operands) :]:
        body += stored(name, kind, k)
    run_body("\n".join(body), *arrays, grid=(n,))
    return arrays[len(operands) :]


def loaded(name, kind, k):
    if kind == "pred":
        return [f"ld.global.u8 %h, [%a{k}];", f"setp.ne.u16 {name}, %h, 0;"]
    return [f"ld.global.{kind.replace('f16', 'b16')} {name}, [%a{k}];"]


def stored(name, kind, k):
    if kind == "pred":
        return [f"selp.u16 %h, 1, 0, {name};", f"st.global.u8 [%a{k}], %h;"]
    return [f"st.global.{kind.replace('f16', 'b16')} [%a{k}], {name};"]


def assert_same(found, expected, columns=(), what=""):
    """Equal bits, except that all NaN are one."""
    assert found.dtype == expected.dtype
    differs = found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}")
    if found.dtype.kind == "f":
        differs &= ~(np.isnan(found) & np.isnan(expected))
    for row in np.flatnonzero(differs)[:1]:
        operands = [column[row] for column in columns]
        raise AssertionError(f"{what} of {operands}: {found[row]!r}, expected {expected[row]!r}")


def edges(kind):
    """Values of a type where an operation may go wrong."""
    if kind == "pred":
        return np.array([False, True])
    dtype = DTYPES[kind]
    if kind not in FLOATS:
        width = 8 * dtype.itemsize
        near = [0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257]
        top = [(1 << width - 1) + k for k in (-2, -1, 0, 1, 2)] + [(1 << width) - k for k in (1, 2)]
        bits = [number % (1 << width) for number in near + top]
        return np.unique(np.array(bits, f"u{dtype.itemsize}")).view(dtype)
    limits = np.finfo(dtype)
    tiny, least, most = limits.tiny, limits.smallest_subnormal, limits.max
    some = [0, least, tiny - least, tiny, 2 * tiny, most, most / 2, np.inf, 1 / tiny, 1e20, 1e-20]
    some += [0.49, 0.5, 1 - limits.epsneg, 1, 1 + limits.eps, 1.5, 2.5, 3, 99]
    some += [127.5, 32767.5, 65535.5]
    for power in (31, 32, 63, 64):
        with np.errstate(over="ignore"):
            some += [2.0**power, np.nextafter(dtype.type(2.0**power), dtype.type(0))]
    with np.errstate(over="ignore"):
        some = np.array(some, dtype)
    return np.concatenate([some, -some, [dtype.type(np.nan)]])


def scattered(kind, n, rng):
    """Random values of a type, of all magnitudes."""
    dtype = DTYPES[kind]
    if kind == "pred":
        return rng.integers(0, 2, n).astype(bool)
    bits = rng.integers(0, 1 << 8 * dtype.itemsize, n, f"u{dtype.itemsize}")
    if kind not in FLOATS:
        return (bits >> rng.integers(0, 8 * dtype.itemsize, n).astype(bits.dtype)).view(dtype)
    near_one = rng.normal(size=n) * 2.0 ** rng.integers(-10, 40 if dtype.itemsize > 2 else 8, n)
    return np.where(rng.random(n) < 0.5, bits.view(dtype), near_one.astype(dtype))


def rows(kinds, n=1000):
    """Columns of operands: all pairs of edges, or many mixtures of them; and n random rows."""
    rng = np.random.default_rng(1)
    all_edges = [edges(kind) for kind in kinds]
    if len(kinds) <= 2:
        picked = list(zip(*itertools.product(*map(range, map(len, all_edges))), strict=True))
    else:
        picked = [rng.integers(0, len(some), 2 * n) for some in all_edges]
    columns = []
    for kind, some, indices in zip(kinds, all_edges, picked, strict=True):
        mixed = np.where(rng.random(n) < 0.3, rng.choice(some, n), scattered(kind, n, rng))
        columns.append(np.concatenate([some[list(indices)], mixed]))
    return columns
