# SPDX-License-Identifier: Apache-2.0
"""The C interface of Attnloom (include/attnloom/attnloom.h) through ctypes, as far as the benchmarks need it.

Nothing here imports torch: a tensor is an address with a dtype and strides, which `tensor_of` reads from anything that
has torch's methods. Whoever passes memory keeps it alive. Threads: as the C interface says.
"""

import ctypes
import json
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

DEVICES = {"auto": 0, "cuda": 1, "sim": 2}
DTYPES = {"none": 0, "float16": 1, "bfloat16": 2, "float32": 3, "int32": 6, "uint8": 7}
DTYPES |= {"float8_e4m3fn": 4, "float8_e5m2": 5}


class AlmError(ctypes.Structure):
    _fields_ = [
        ("code", c_int),
        ("name", c_char_p),
        ("path", c_char_p),
        ("cause", c_char_p),
        ("remedy", c_char_p),
        ("retryable", c_int),
    ]


class AlmContextOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("device", c_int),
        ("simulator_profile", c_char_p),
        ("simulator_seed", c_uint64),
        ("cache_dir", c_char_p),
        ("read_only_caches", c_char_p),
        ("nvrtc", c_char_p),
        ("jit", c_int),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("log_level", c_int),
        ("lock_dir", c_char_p),
        ("python_paths", c_char_p),
        ("trust_keys", c_char_p),
        ("cache_max_size", c_char_p),
        ("policy", c_int),
        ("policy_timeout_ms", c_uint32),
        ("compile_timeout_ms", c_uint32),
        ("jobs", c_uint32),
        ("max_loaded_kernels", c_uint32),
        ("max_loaded_bytes", c_uint64),
        ("access_log", c_char_p),
    ]


class AlmPlanLimits(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("max_batch", c_int32),
        ("max_qo_tokens", c_int64),
        ("q_heads", c_int32),
        ("kv_heads", c_int32),
        ("policy", c_int),
        ("policy_timeout_ms", c_uint32),
        ("sm_budget", c_int32),
        ("max_ctas", c_int32),
        ("batch_invariant", c_int32),
        ("graph", c_int32),
        ("kernel", c_int32),
        ("no_shared_prefixes", c_int32),
    ]


class AlmPlanSizes(ctypes.Structure):
    _fields_ = [("struct_bytes", c_size_t), ("workspace_bytes", c_size_t), ("staging_bytes", c_size_t)]


class AlmIndexArray(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_int64), ("stride", c_int64), ("dtype", c_int)]


class AlmScalar(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_double)]


class AlmWorkload(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("qo_indptr", AlmIndexArray),
        ("kv_indptr", AlmIndexArray),
        ("last_page_len", AlmIndexArray),
        ("page_indices", AlmIndexArray),
        ("pool_pages", c_int64),
        ("scale", c_float),
        ("window_left", c_int32),
        ("scalars", POINTER(AlmScalar)),
        ("scalar_count", c_size_t),
        ("kv_start", AlmIndexArray),
        ("kv_capacity", c_int64),
        ("block_indptr", AlmIndexArray),
        ("block_indices", AlmIndexArray),
        ("levels", c_void_p),
        ("level_count", c_size_t),
    ]


class AlmTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int),
        ("rank", c_int32),
        ("shape", c_int64 * 5),
        ("strides", c_int64 * 5),
    ]


class AlmPointerParam(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("tensor", AlmTensor)]


class AlmAttention(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("q", AlmTensor),
        ("k", AlmTensor),
        ("v", AlmTensor),
        ("o", AlmTensor),
        ("lse", AlmTensor),
        ("page_indices", AlmTensor),
        ("params", POINTER(AlmPointerParam)),
        ("param_count", c_size_t),
        ("block_indices", AlmTensor),
        ("custom_mask", AlmTensor),
        ("k_scale", AlmTensor),
        ("v_scale", AlmTensor),
    ]


# Every struct above, by its name in the header; a test compares size and offsets with the compiler's.
STRUCTS = {
    "alm_error": AlmError,
    "alm_context_options": AlmContextOptions,
    "alm_plan_limits": AlmPlanLimits,
    "alm_plan_sizes": AlmPlanSizes,
    "alm_index_array": AlmIndexArray,
    "alm_scalar": AlmScalar,
    "alm_workload": AlmWorkload,
    "alm_tensor": AlmTensor,
    "alm_pointer_param": AlmPointerParam,
    "alm_attention": AlmAttention,
}

# The arguments of each, without the alm_error** that ends every list.
FUNCTIONS: dict[str, list[Any]] = {
    "alm_context_create": [POINTER(AlmContextOptions), POINTER(c_void_p)],
    "alm_kernel_open": [c_void_p, c_char_p, c_size_t, POINTER(c_void_p)],
    "alm_kernel_prepare": [c_void_p],
    "alm_plan_create": [c_void_p, POINTER(AlmPlanLimits), POINTER(c_void_p), POINTER(AlmPlanSizes)],
    "alm_plan_bind": [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t],
    "alm_plan_update": [c_void_p, POINTER(AlmWorkload), c_void_p],
    "alm_run": [c_void_p, POINTER(AlmAttention), c_void_p],
    "alm_memory_allocate": [c_void_p, c_size_t, c_char_p, POINTER(c_void_p)],
    "alm_memory_free": [c_void_p, c_void_p],
    "alm_memory_copy_in": [c_void_p, c_void_p, c_void_p, c_size_t],
    "alm_memory_copy_out": [c_void_p, c_void_p, c_void_p, c_size_t],
    "alm_synchronize": [c_void_p, c_void_p],
}


class Failure(Exception):
    """A call that did not return ALM_OK; `name` is its code's."""

    def __init__(self, name, path, cause, remedy):
        super().__init__(f"{name} at '{path}': {cause} ({remedy})")
        self.name = name


class Library:
    """libattnloom.so, its functions as methods that raise Failure: `library.call("alm_run", plan, ...)`."""

    def __init__(self, path):
        self.dll = ctypes.CDLL(path)
        for name, arguments in FUNCTIONS.items():
            function = getattr(self.dll, name)
            function.argtypes = arguments + [POINTER(POINTER(AlmError))]
            function.restype = c_int
        self.dll.alm_error_free.argtypes = [POINTER(AlmError)]
        for name in ("alm_context_destroy", "alm_kernel_destroy", "alm_plan_destroy"):
            getattr(self.dll, name).argtypes = [c_void_p]
            getattr(self.dll, name).restype = None
        self.dll.alm_version.restype = c_char_p

    def version(self):
        return self.dll.alm_version().decode()

    def call(self, name, *arguments):
        error = POINTER(AlmError)()
        if getattr(self.dll, name)(*arguments, byref(error)) == 0:
            return
        found = error.contents
        failure = Failure(*[text.decode() for text in (found.name, found.path, found.cause, found.remedy)])
        self.dll.alm_error_free(error)
        raise failure


class Context:
    """A context; as a context manager it is destroyed at the end, after all that was made from it."""

    def __init__(self, library, device="cuda", cache=None):
        options = AlmContextOptions(struct_bytes=ctypes.sizeof(AlmContextOptions), device=DEVICES[device])
        options.cache_dir = cache.encode() if cache else None
        self.library = library
        self.handle = c_void_p()
        library.call("alm_context_create", byref(options), byref(self.handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.dll.alm_context_destroy(self.handle)

    def synchronize(self):
        self.library.call("alm_synchronize", self.handle, None)

    def allocate(self, size, contents=None):
        """The address of `size` bytes of the device, for where torch does not manage its memory."""
        address = c_void_p()
        self.library.call("alm_memory_allocate", self.handle, size, b"bench", byref(address))
        if contents is not None:
            self.library.call("alm_memory_copy_in", self.handle, address, contents, size)
        return address.value

    def read(self, address, size):
        contents = ctypes.create_string_buffer(size)
        self.library.call("alm_memory_copy_out", self.handle, contents, address, size)
        return contents.raw

    def free(self, address):
        self.library.call("alm_memory_free", self.handle, address)


class Kernel:
    """A spec, opened; with `prepare` every kernel of its set is compiled or found and loaded, else each when a plan
    needs it."""

    def __init__(self, context, spec, prepare=True):
        self.library = context.library
        self.handle = c_void_p()
        text = json.dumps(spec).encode()
        self.library.call("alm_kernel_open", context.handle, text, len(text), byref(self.handle))
        if not prepare:
            return
        try:
            self.library.call("alm_kernel_prepare", self.handle)
        except Failure:
            self.close()
            raise

    def close(self):
        self.library.dll.alm_kernel_destroy(self.handle)


class Plan:
    """A plan within fixed bounds. `bind` gives it memory, `update` plans a batch, `run` launches."""

    def __init__(self, kernel, max_batch, max_qo_tokens, q_heads, kv_heads):
        limits = AlmPlanLimits(ctypes.sizeof(AlmPlanLimits), max_batch, max_qo_tokens, q_heads, kv_heads)
        sizes = AlmPlanSizes(struct_bytes=ctypes.sizeof(AlmPlanSizes))
        self.library = kernel.library
        self.handle = c_void_p()
        self.library.call("alm_plan_create", kernel.handle, byref(limits), byref(self.handle), byref(sizes))
        self.workspace_bytes = sizes.workspace_bytes
        self.staging_bytes = sizes.staging_bytes

    def bind(self, workspace, staging):
        """Addresses of at least workspace_bytes on the device and staging_bytes on the host."""
        self.library.call(
            "alm_plan_bind", self.handle, workspace, self.workspace_bytes, staging, self.staging_bytes
        )

    def update(self, workload, stream=None):
        self.library.call("alm_plan_update", self.handle, byref(workload), stream)

    def run(self, attention, stream=None):
        self.library.call("alm_run", self.handle, byref(attention), stream)

    def close(self):
        self.library.dll.alm_plan_destroy(self.handle)


def index_array(values):
    data = (c_int32 * len(values))(*values)
    array = AlmIndexArray(data=ctypes.cast(data, c_void_p), length=len(values))
    array.owner = data
    return array


def workload(
    qo_indptr, kv_indptr, last_page_len=None, scalars=None, window_left=0, page_indices=None, pool_pages=0
):
    """A workload of lists of int; it keeps its arrays alive."""
    result = AlmWorkload(struct_bytes=ctypes.sizeof(AlmWorkload), window_left=window_left, pool_pages=pool_pages)
    arrays = {"qo_indptr": qo_indptr, "kv_indptr": kv_indptr, "last_page_len": last_page_len}
    arrays["page_indices"] = page_indices
    # Assigning a struct copies its bytes, so the arrays that it points to have to be held here.
    result.owners = {name: index_array(values) for name, values in arrays.items() if values is not None}
    for name, array in result.owners.items():
        setattr(result, name, array)
    entries = [AlmScalar(name.encode(), value) for name, value in (scalars or {}).items()]
    result.scalar_count = len(entries)
    result.scalars = (AlmScalar * len(entries))(*entries)
    return result


def tensor(address, dtype, shape, strides=None):
    """A tensor at an address; without strides (in elements) it is dense."""
    if strides is None:
        strides = [1] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * shape[axis + 1]
    result = AlmTensor(data=address, dtype=DTYPES[dtype], rank=len(shape))
    result.shape[: len(shape)] = shape
    result.strides[: len(shape)] = strides
    return result


def tensor_of(array):
    """The tensor of a torch.Tensor, which stays the owner."""
    return tensor(array.data_ptr(), str(array.dtype).removeprefix("torch."), list(array.shape), list(array.stride()))


def attention(q, k, v, o, page_indices=None, lse=None, params=None, custom_mask=None):
    """The tensors of one run; `params` maps names to tensors."""
    result = AlmAttention(struct_bytes=ctypes.sizeof(AlmAttention), q=q, k=k, v=v, o=o)
    if page_indices is not None:
        result.page_indices = page_indices
    if lse is not None:
        result.lse = lse
    if custom_mask is not None:
        result.custom_mask = custom_mask
    entries = [AlmPointerParam(name.encode(), array) for name, array in (params or {}).items()]
    result.param_count = len(entries)
    result.params = (AlmPointerParam * len(entries))(*entries)
    return result


class Contender:
    """One row's batch on the current torch device and stream; what bench/compare times against a peer."""

    plans = True

    def __init__(self, torch, context, batch, spec, variant, name="ours", prepare=True):
        self.name = name
        self.torch = torch
        self.batch = batch  # owns the memory that the runs point to, a widened cache among it
        self.kernel = Kernel(context, spec, prepare)
        shape = batch.shape
        self.plan_handle = Plan(
            self.kernel, len(shape.kv_lens), batch.qo_indptr[-1], shape.q_heads, shape.kv_heads
        )
        self.workspace = torch.empty(self.plan_handle.workspace_bytes, dtype=torch.uint8, device="cuda")
        self.staging = torch.empty(self.plan_handle.staging_bytes, dtype=torch.uint8, pin_memory=True)
        self.plan_handle.bind(self.workspace.data_ptr(), self.staging.data_ptr())
        # The host mirror, by which shared prefixes are found, where there are any.
        mirror = {"page_indices": batch.page_indices.tolist(), "pool_pages": len(batch.pools[0].kv)} if shape.prefix else {}
        self.workload = workload(
            batch.qo_indptr, batch.kv_indptr, batch.last_page_len, variant.scalars, **mirror
        )
        q = batch.pools[0].q
        self.out = q.new_empty(*q.shape[:2], shape.head_dim_vo)
        self.arrays = variant.arrays(torch, shape)
        params = {key: tensor_of(array) for key, array in self.arrays.items()}
        pages = tensor_of(batch.page_indices) if batch.page_indices is not None else None
        self.mask = variant.custom_mask(torch, shape) if variant.custom_mask else None
        mask = tensor_of(self.mask) if self.mask is not None else None
        self.runs = [
            attention(
                *(tensor_of(x) for x in (pool.q, pool.k, pool.v, self.out)), pages, params=params, custom_mask=mask
            )
            for pool in batch.pools
        ]

    def plan(self):
        self.plan_handle.update(self.workload, self.torch.cuda.current_stream().cuda_stream)

    def launch(self, pool):
        self.plan_handle.run(self.runs[pool], self.torch.cuda.current_stream().cuda_stream)

    def output(self, pool):
        self.launch(pool)
        return self.out

    def close(self):
        self.torch.cuda.synchronize()
        self.plan_handle.close()
        self.kernel.close()
