# SPDX-License-Identifier: Apache-2.0
"""The errors of the library as exceptions: a class for each kind, in which `code` says which it is.

Codes are those of `alm_code` in attnloom.h and never change.
"""


class Error(Exception):
    """Base of all that Attnloom raises.

    code: the stable name, "SPEC_INVALID".
    field: the argument, or the field of the spec ("$.variant.mask.causl"), that is wrong; may be "".
    cause: what is wrong, one line, with the value that was given.
    remedy: what to do; may be "".
    retryable: the same call may succeed later.
    """

    def __init__(self, code: str, field: str, cause: str, remedy: str = "", retryable: bool = False) -> None:
        super().__init__(code, field, cause, remedy, retryable)
        self.code = code
        self.field = field
        self.cause = cause
        self.remedy = remedy
        self.retryable = retryable

    def __str__(self) -> str:
        place = f" at {self.field}" if self.field else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{self.code}{place}: {self.cause}{remedy}"


class SpecError(Error, ValueError):
    """The spec or its variant: SPEC_INVALID, SPEC_UNSUPPORTED, TEMPLATE, RESOURCE_LIMIT."""


class CompileError(Error):
    """NVRTC, or what it was given: COMPILER_MISSING, COMPILER_VERSION, COMPILE_FAILED, COMPILE_TIMEOUT, CANCELLED."""


class CacheError(Error):
    """A cache layer: CACHE_CORRUPT, CACHE_IO, NOT_CACHED, UNTRUSTED, REMOTE."""


class DeviceError(Error):
    """Driver or device: NO_DRIVER, NO_DEVICE, ARCH_MISMATCH, DRIVER_TOO_OLD, LOAD_FAILED, CAPTURE_ACTIVE, LAUNCH,
    OUT_OF_MEMORY."""


class ForkedError(DeviceError):
    """FORKED: this process was forked from one that had already used the GPU."""


class WorkloadError(Error, ValueError):
    """The batch that was given to plan(): WORKLOAD_INVALID."""


class TensorError(Error, ValueError):
    """A tensor that was given to run(): TENSOR_INVALID. Its dtype, device, shape, stride or alignment."""


class PlanError(Error):
    """Plan and run do not fit: PLAN_BOUND, PLAN_MISMATCH, PLAN_STALE."""


class ArgumentError(Error, ValueError):
    """Any other argument: ARGUMENT_INVALID."""


class InternalError(Error):
    """INTERNAL: a fault of Attnloom itself. Please report it."""


_CLASSES: dict[str, type[Error]] = {
    "SPEC_INVALID": SpecError,
    "SPEC_UNSUPPORTED": SpecError,
    "TEMPLATE": SpecError,
    "RESOURCE_LIMIT": SpecError,
    "COMPILER_MISSING": CompileError,
    "COMPILER_VERSION": CompileError,
    "COMPILE_FAILED": CompileError,
    "COMPILE_TIMEOUT": CompileError,
    "CANCELLED": CompileError,
    "CACHE_CORRUPT": CacheError,
    "CACHE_IO": CacheError,
    "NOT_CACHED": CacheError,
    "UNTRUSTED": CacheError,
    "REMOTE": CacheError,
    "OUT_OF_MEMORY": DeviceError,
    "NO_DRIVER": DeviceError,
    "NO_DEVICE": DeviceError,
    "ARCH_MISMATCH": DeviceError,
    "DRIVER_TOO_OLD": DeviceError,
    "LOAD_FAILED": DeviceError,
    "CAPTURE_ACTIVE": DeviceError,
    "LAUNCH": DeviceError,
    "FORKED": ForkedError,
    "WORKLOAD_INVALID": WorkloadError,
    "TENSOR_INVALID": TensorError,
    "PLAN_BOUND": PlanError,
    "PLAN_MISMATCH": PlanError,
    "PLAN_STALE": PlanError,
    "ARGUMENT_INVALID": ArgumentError,
    "INTERNAL": InternalError,
}


def from_code(name: str, field: str, cause: str, remedy: str, retryable: bool) -> Error:
    """The exception of an `alm_error`; the extension calls it."""
    return _CLASSES.get(name, InternalError)(name, field, cause, remedy, retryable)


def refused(field: str, cause: str, remedy: str = "") -> ArgumentError:
    """An argument that the package itself refuses."""
    return ArgumentError("ARGUMENT_INVALID", field, cause, remedy)
