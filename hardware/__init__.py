"""Chip facts as data; standard library only."""

from .arch import Arch as Arch
from .arch import ArchLike as ArchLike
from .arch import Engine as Engine
from .dtypes import Dtype as Dtype
from .dtypes import WireDtype as WireDtype
from .errors import AddressError as AddressError
from .errors import CapabilityError as CapabilityError
from .errors import MxrefError as MxrefError
from .evidence import Evidence as Evidence
from .memory import Geometry as Geometry
from .memory import Space as Space
from .memory import geometry as geometry
from .memory import quadrant as quadrant
from .pe import AccumulateFlag as AccumulateFlag

# Lets mxref tell this package from another distribution's package of the same name.
_MXREF_PACKAGE = True
