"""A million mixed bundles: decoding with validation, columns, encoding; 64 MB each."""

from __future__ import annotations

import random

import numpy as np
import pytest

from encoding import bundle_types, decode, decode_stream, encode, encode_stream
from encoding.sample import draw

COUNT = 1_000_000


@pytest.fixture(scope="module")
def data():
    rng = random.Random(0)
    drawn = [encode(draw(cls, rng, gather=0.1)) for cls in bundle_types() for _ in range(2000)]
    pool = np.frombuffer(b"".join(drawn), np.uint8).reshape(-1, 64)
    return pool[np.random.default_rng(0).integers(0, len(pool), COUNT)].tobytes()


def rate(benchmark):
    benchmark.extra_info["MB/s"] = round(64 * COUNT / benchmark.stats["min"] / 1e6)


def test_decode_stream(benchmark, data):
    stream = benchmark(decode_stream, data)
    rate(benchmark)
    assert len(stream) == COUNT


def test_encode_stream(benchmark, data):
    parts = decode_stream(data).split()
    again = benchmark(encode_stream, parts)
    rate(benchmark)
    assert again == data


def test_one_column(benchmark, data):
    stream = decode_stream(data)
    benchmark(stream.column, "num_active_cols")


@pytest.mark.parametrize("cls", bundle_types())
def test_decode_one(benchmark, cls):
    one = encode(draw(cls, random.Random(1)))
    benchmark(decode, one)
