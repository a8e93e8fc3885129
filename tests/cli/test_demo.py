"""The demo: what it prints, and that one wrong bit turns it red."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mxref as mx
from mxref import demo


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    place = tmp_path_factory.mktemp("demo")
    return [demo.evaluate(job, place) for job in demo.JOBS]


def test_every_bit_agrees_on_three_roads(results):
    for result in results:
        assert result.bits == 32 * 64 * 96
        assert result.run_equal == result.bits
        assert result.oracle_equal == result.bits
        assert result.violations == ()
        assert result.passed


def test_both_jobs_use_two_tiles_of_k(results):
    by_name = {r.job.name: r.mnemonics for r in results}
    assert by_name["MXFP8"] == {"QuantizeMx": 4, "LdWeightMx": 2, "MatmultMx": 2}
    assert by_name["MXFP4"] == {"LdWeightMx": 2, "MatmultMx": 2}


def test_the_numbers_make_sense(results):
    fp8, fp4 = (r.fidelity for r in results)
    assert fp8.sqnr > fp4.sqnr + 10
    assert results[0].correct == 64


def test_programs_are_the_ones_that_ran(results):
    for result in results:
        assert mx.Program.load(result.file).bytes() == demo.programs()[result.job.name].bytes()


def test_the_table(results, call, room, monkeypatch):
    ready = iter(results)
    monkeypatch.setattr(demo, "evaluate", lambda job, place, report: next(ready))
    done = call("demo", "--keep", room)
    assert done.code == 0
    assert "Every bit agrees on all three roads." in done.out
    assert done.out.count("196,608  100 %") == 4
    assert "float64 reads 64 of 64 digits right." in done.out


def test_one_wrong_bit_is_seen(results, call, monkeypatch):
    wrong = dataclasses.replace(results[1], oracle_equal=results[1].bits - 1)
    ready = iter([results[0], wrong])
    monkeypatch.setattr(demo, "evaluate", lambda job, place, report: next(ready))
    done = call("demo")
    assert done.code == 1
    assert "196,607  99.9994 %" in done.out
    assert "Not the same bits in MXFP4." in done.out


def test_a_wrong_bit_in_the_kernel_is_counted(tmp_path, monkeypatch):
    """The comparison itself: flip one bit of the direct kernel's result."""
    job = demo.JOBS[1]
    true = demo.direct(job, demo.programs()[job.name])
    bent = true.copy()
    bent.view(np.uint32)[3, 5] ^= 1 << 9
    monkeypatch.setattr(demo, "direct", lambda job, program: bent)
    opinion = {"out": true.view(np.uint32)}
    monkeypatch.setattr(demo, "second_opinion", lambda program: opinion)
    result = demo.evaluate(job, tmp_path)
    assert result.run_equal == result.oracle_equal == result.bits - 1
    assert not result.passed


def test_keep_makes_the_directory(results, call, room, monkeypatch):
    ready = iter(results)
    monkeypatch.setattr(demo, "evaluate", lambda job, place, report: next(ready))
    assert call("demo", "--keep", "kept").code == 0
    assert (room / "kept").is_dir()


def test_keep_needs_a_place_for_a_directory(refused, room):
    (room / "file").write_bytes(b"")
    assert "file: is a file" in refused("demo", "--keep", "file")
    assert "no such file or directory" in refused("demo", "--keep", "nowhere/deeper")
