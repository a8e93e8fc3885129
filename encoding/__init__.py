"""Bytes, typed records and text; standard library only (numpy for stream columns)."""

from typing import TYPE_CHECKING, Any

from . import describe as describe
from . import pack as pack
from .abstract import MatmultMxOp as MatmultMxOp
from .abstract import QuantizeMxOp as QuantizeMxOp
from .access import AccessPattern as AccessPattern
from .address import Addr4 as Addr4
from .bundle import Bundle as Bundle
from .bundle import bundle_layouts as bundle_layouts
from .bundle import bundle_types as bundle_types
from .bundle import decode as decode
from .bundle import decode_all as decode_all
from .bundle import encode as encode
from .bundle import encode_all as encode_all
from .dense import LoadStationary as LoadStationary
from .dense import Matmul as Matmul
from .describe import byte_map as byte_map
from .emit import CodeGenMode as CodeGenMode
from .emit import Emitter as Emitter
from .errors import AssemblyError as AssemblyError
from .errors import DecodeError as DecodeError
from .errors import EncodeError as EncodeError
from .errors import LegalityError as LegalityError
from .errors import Violation as Violation
from .legality import check as check
from .multiply import MatmultOp as MatmultOp
from .multiply import MatmultSparseOp as MatmultSparseOp
from .mx import LdWeightMx as LdWeightMx
from .mx import MatmultMx as MatmultMx
from .mx import QuantizeMx as QuantizeMx
from .patterns import Indirect16 as Indirect16
from .patterns import Indirect20 as Indirect20
from .patterns import MxIndirect as MxIndirect
from .patterns import MxPattern as MxPattern
from .patterns import Tensor1D as Tensor1D
from .patterns import Tensor2D as Tensor2D
from .patterns import Tensor3D as Tensor3D
from .patterns import Tensor4D as Tensor4D
from .patterns import decode_pattern as decode_pattern
from .patterns import encode_pattern as encode_pattern
from .sparse import LoadTagsSparse as LoadTagsSparse
from .sparse import MatmultSparse as MatmultSparse
from .text import assemble as assemble
from .text import disassemble as disassemble

if TYPE_CHECKING:
    from .stream import BundleStream as BundleStream
    from .stream import Columns as Columns
    from .stream import decode_stream as decode_stream
    from .stream import encode_stream as encode_stream


def __getattr__(name: str) -> Any:
    """Import the stream names when they are asked for: they alone need numpy."""
    if name in ("BundleStream", "Columns", "decode_stream", "encode_stream"):
        from . import stream

        return getattr(stream, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Lets mxref tell this package from another distribution's package of the same name.
_MXREF_PACKAGE = True
