"""Run programs: bytes, lists of instructions, or :class:`~mxref.program.Program` values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import encoding
from encoding import Bundle, LegalityError
from hardware import Arch, ArchLike
from mxref.errors import PolicyError, ProgramError
from mxref.policy import NEURON_2_24, SYSTOLIC_MX, Accumulate, NumericPolicy, Order
from mxref.policy import order as resolve_order
from mxref.policy import policy as resolve_policy
from mxref.program import Program, Segment
from mxref.program.layout import TILE_K

from .accumulate import ZeroScope
from .execute import Machine
from .host import Outputs, place_inputs, prepare
from .memory import Memory
from .state import State, Uninitialised


def run(
    program: bytes | Bundle | Sequence[Bundle] | Program,
    state: State | None = None,
    *,
    arch: ArchLike = Arch.MARIANA,
    policy: NumericPolicy | str | None = None,
    accumulate: Accumulate | str | None = None,
    check: bool = True,
    uninitialised: Uninitialised = "nan",
    zero: ZeroScope = "written",
    trace: bool = False,
    inputs: Mapping[str, object] | None = None,
) -> State:
    """Execute a program and return the State it leaves; the one given does not change.

    A bundle means: LdWeightMx latches a stationary tile, MatmultMx adds its product with a moving
    tile into PSUM, QuantizeMx narrows 8 x 4 blocks (D22-D26).  A :class:`Program` also places its
    inputs and fetches its outputs into ``State.outputs``.

    Args:
      program: raw 64-byte bundles, one or more decoded instructions, or a Program.
      state: memories to start from; None for memories that nothing wrote.
      arch: the generation, for bytes and instructions; a Program brings its own.
      policy: the reading of the arithmetic; default the Program's, else NEURON_2_24 (D19).
      accumulate: the order of additions; default the Program's, else SYSTOLIC_MX (D23).  No public
        source pins the silicon's order: the default is ASSUMED.
      check: refuse bundles that break the wire rules before anything runs.
      uninitialised: what reading bytes that nothing wrote gives: NaN results, an error, or zeros.
      zero: what START clears when the zero region is 0: the bytes written, or the whole bank.
      trace: record one line per bundle in ``State.trace``.
      inputs: operands of a Program by name, in place of those it keeps.

    Raises:
      DecodeError: when bytes are no instruction of the generation.
      LegalityError: with every violation, when ``check`` finds any.
      ExecutionError: when the state cannot give what a bundle asks for.
      Unmodelled: when a bundle uses something whose arithmetic no source gives (D24).
      PolicyError: when policy or order cannot be had, or ``state`` or ``inputs`` is no such thing.
      ProgramError: when ``program`` is none of the above.

    Exactness:
      Bit-exact for the named order and policy, and equal to ``matmul`` of the same operands in that
      order: test_lowered_equals_direct.
    Gradient:
      None; ``quantized_matmul`` is the differentiable form of the same numbers.
    """
    for name, value, kind in (
        ("uninitialised", uninitialised, Uninitialised),
        ("zero", zero, ZeroScope),
    ):
        if value not in get_args(kind):
            raise PolicyError(name, value, ", ".join(get_args(kind)))
    if state is not None and not isinstance(state, State):
        raise PolicyError("state", type(state).__name__, "a State, or None")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise PolicyError("inputs", type(inputs).__name__, "a mapping from names to operands")
    arch = Arch.parse(arch)
    program = _program(program)
    whole = program if isinstance(program, Program) else None
    if whole is not None:
        arch = whole.arch
    elif inputs:
        raise PolicyError("inputs", list(inputs), "only with a Program, which names its inputs")
    if state is not None and state.arch is not arch:
        raise PolicyError("state.arch", repr(state.arch), repr(arch))
    chosen_policy = _policy(policy, whole)
    chosen_order = _order(accumulate, whole)
    segments = _decoded(program, arch, strict=check)
    if check:
        _check(segments, arch)
    memory = Memory(state, arch, uninitialised)
    machine = Machine(memory, chosen_policy, chosen_order, zero, trace=[] if trace else None)
    operands = {} if whole is None else prepare(whole, inputs or {})
    outputs = Outputs(whole)
    index = 0
    for segment, bundles in segments:
        place_inputs(memory, segment, operands)
        for bundle in bundles:
            machine.step(index, bundle)
            index += 1
        outputs.fetch(memory, segment)
    return memory.publish(outputs=outputs.finish(), trace=tuple(machine.trace or ()))


def _one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise PolicyError(option, value, ", ".join(allowed))


def _program(program: object) -> bytes | list[Bundle] | Program:
    if isinstance(program, Program):
        return program
    if isinstance(program, bytes | bytearray | memoryview):
        return bytes(program)
    if isinstance(program, Bundle):
        return [program]
    found = None if isinstance(program, str) or not isinstance(program, Iterable) else [*program]
    wrong = None if found is None else next((b for b in found if not isinstance(b, Bundle)), None)
    if found is None or wrong is not None:
        got = type(program).__name__ + (f" of {type(wrong).__name__}" if found else "")
        raise ProgramError(
            "program",
            f"got {got}, allowed a Program (Program.load reads files), bytes of bundles, "
            "or instructions",
        )
    return found


Decoded = list[tuple[Segment, Sequence[Bundle]]]


def _decoded(program: bytes | Sequence[Bundle] | Program, arch: Arch, *, strict: bool) -> Decoded:
    if isinstance(program, Program):
        if strict:
            return list(zip(program.segments, program.decoded, strict=True))
        loose = [encoding.decode_all(s.bundles, arch, strict=False) for s in program.segments]
        return list(zip(program.segments, loose, strict=True))
    if isinstance(program, bytes):
        return [(Segment(), encoding.decode_all(program, arch, strict=strict))]
    # Encoding and decoding applies the same refusals to instructions made by hand.
    data = b"".join(encoding.encode(bundle, arch) for bundle in program)
    return [(Segment(), encoding.decode_all(data, arch, strict=strict))]


def _check(segments: Decoded, arch: Arch) -> None:
    bundles = [bundle for _, part in segments for bundle in part]
    if not bundles:
        return
    violations = encoding.check(bundles, arch, level="wire")
    if violations:
        raise LegalityError(violations)


def _policy(policy: NumericPolicy | str | None, program: Program | None) -> NumericPolicy:
    own = NEURON_2_24 if program is None else program.policy
    chosen = own if policy is None else resolve_policy(policy)
    if program is not None and chosen != own:
        kept = [item.name for item in program.inputs.values() if item.kind == "mx"]
        if kept:
            # Codes mean what their policy says; a run cannot give them another one (D23d).
            raise PolicyError(
                "policy", chosen, f"{own}, the policy of the inputs {', '.join(kept)}"
            )
    return chosen


def _order(accumulate: Accumulate | str | None, program: Program | None) -> Accumulate:
    if accumulate is None:
        return SYSTOLIC_MX if program is None else program.order
    return machine_order(accumulate)


def machine_order(accumulate: Accumulate | str) -> Accumulate:
    """Resolve an order and refuse those that PSUM accumulation cannot have.

    Raises:
      PolicyError: for BACKEND, and for systolic tiles that K tiles of 512 do not hold whole.
    """
    order = resolve_order(accumulate)
    if order.order is Order.BACKEND:
        raise PolicyError("accumulate", order, "an order with fixed bits; BACKEND has none (D23)")
    if order.order is Order.SYSTOLIC and TILE_K % order.tile_k:
        raise PolicyError(
            "accumulate", order, f"a tile_k that divides {TILE_K}, the machine's tile"
        )
    return order
