"""What random models are made of: a Case, shapes, and tensors, all from a generator of random numbers."""

import dataclasses

import numpy as np

F32 = np.float32
INTS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


@dataclasses.dataclass
class Case:
    nodes: list  # (operator, inputs, attributes), inputs by name; each makes value "v<i>" ("v<i>_<k>" for several)
    inputs: dict  # name -> array
    constants: dict  # name -> array, initializers
    outputs: int = 1  # of the last node
    opset: int = 20
    rtol: float = 1e-3
    atol: float = 1e-5


def single(op, inputs, constants=None, outputs=1, opset=20, order=None, **attributes):
    names = order if order is not None else [*inputs, *(constants or {})]
    return Case([(op, names, attributes)], inputs, constants or {}, outputs, opset)


def extent(rng, most=6):
    return int(rng.choice([0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33], p=[0.03] + [0.97 / 12] * 12)) if rng.random() < 0.5 else int(rng.integers(1, most + 1))


def shape(rng, low=0, high=4):
    return tuple(extent(rng) for _ in range(rng.integers(low, high + 1)))


def tensor(rng, dims, dtype=F32, low=-4, high=4):
    if dtype == np.bool_:
        return rng.integers(0, 2, dims).astype(bool)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(max(low, 0) if np.issubdtype(dtype, np.unsignedinteger) else low, high + 1, dims).astype(dtype)
    return np.asarray(rng.uniform(low, high, dims)).astype(dtype)


def special(rng, dims, dtype=F32):
    """Numbers among which are infinities, NaN, zeros of both signs and subnormal ones."""
    x = tensor(rng, dims, dtype)
    odd = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, 1e30, -1e30, 1.0, -1.0, 0.5, 2.5, -2.5], dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        return np.where(rng.random(dims) < 0.3, rng.choice(odd, dims), x).astype(dtype)


def axis_of(rng, rank):
    return int(rng.integers(-rank, rank))


def broadcastable(rng, dims):
    """A shape that broadcasts with dims: leading dimensions dropped, some of extent 1."""
    out = [1 if rng.random() < 0.35 else d for d in dims[rng.integers(0, len(dims) + 1):]]
    return tuple(out)


def one_of(rng, items):
    return items[int(rng.integers(0, len(items)))]
