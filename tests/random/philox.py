"""Philox 4x32-10 (Salmon et al. 2011) in numpy, and the numbers that graph/ops/random.h says are made of it."""

import numpy as np

MASK = np.uint64(0xFFFFFFFF)
BITS = np.uint64(32)
# Counter, key and block, from the known answers that come with Random123, the authors' implementation.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


def block(counter, key):
    """The four words, each in 64 bits, for arrays of words."""
    c = [np.asarray(word, np.uint64) for word in counter]
    k = [np.asarray(word, np.uint64) for word in key]
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(q >> BITS) ^ c[1] ^ k[0], q & MASK, (p >> BITS) ^ c[3] ^ k[1], p & MASK]
        k = [(k[0] + np.uint64(0x9E3779B9)) & MASK, (k[1] + np.uint64(0xBB67AE85)) & MASK]
    return c


def words(count, seed, stream, execution):
    i = np.arange(count, dtype=np.uint64)
    position = stream << 40 | execution
    return block((i & MASK, i >> BITS, position & 0xFFFFFFFF, position >> 32), (seed & 0xFFFFFFFF, seed >> 32))


def uniform(shape, seed, stream=0, execution=0, dtype=np.float32):
    """In [0, 1)."""
    w = words(int(np.prod(shape)), seed, stream, execution)
    if dtype == np.float64:
        u = ((w[1] << BITS | w[0]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    else:
        u = (w[0] >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    return u.reshape(shape)


def normal(shape, seed, stream=0, execution=0, dtype=np.float32):
    w = words(int(np.prod(shape)), seed, stream, execution)
    if dtype == np.float64:
        u = ((w[1] << BITS | w[0]) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
        turn = (w[3] << BITS | w[2]).view(np.int64).astype(np.float64) * 2.0**-64
    else:
        u = w[0].astype(np.float32).astype(np.float64) * 2.0**-32 + 2.0**-33
        u = u.astype(np.float32).astype(np.float64)
        turn = w[1].astype(np.uint32).view(np.int32).astype(np.float32).astype(np.float64) * 2.0**-32
    return (np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * turn)).astype(dtype).reshape(shape)


def key_of(seed):
    """Of a node's attribute, a float."""
    return int(np.float32(seed).view(np.uint32))
