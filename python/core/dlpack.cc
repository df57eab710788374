// SPDX-License-Identifier: Apache-2.0
#include "python/core/dlpack.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <string>

#include "python/core/exchange.h"
#include "python/core/refusal.h"

namespace attnloom::python {
namespace {

struct DlVersioned {  // "dltensor_versioned"; "dltensor" begins with the tensor itself
  std::uint32_t major;
  std::uint32_t minor;
  void* manager;
  void (*deleter)(DlVersioned*);
  std::uint64_t flags;
  DlTensor tensor;
};

constexpr std::uint64_t kReadOnly = 1;
constexpr int kExternal = 12;  // how the library takes an address that it must not judge

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

// The exporter's own words: it may not export at all, as of a tensor that needs gradients.
[[noreturn]] void refuse_export(const std::string& name, const nb::python_error& error) {
  refuse_tensor(name,
                "cannot be exported by DLPack: " + nb::cast<std::string>(nb::str(error.value())),
                "pass a tensor of a dtype that DLPack has, without gradients");
}

// Names and values of the protocol's two calls, made once: each run makes the calls for each
// tensor. Never freed: the interpreter may be gone before static objects are.
struct Protocol {
  nb::str device_call = nb::str("__dlpack_device__");
  nb::str call = nb::str("__dlpack__");
  nb::tuple version = nb::make_tuple(kDlpackMajor, 0);
  nb::int_ no_synchronise = nb::int_(-1);
  nb::tuple names = nb::make_tuple("max_version", "stream");
  nb::tuple version_name = nb::make_tuple("max_version");
  nb::tuple stream_name = nb::make_tuple("stream");
};

const Protocol& protocol() {
  static const Protocol* const made = new Protocol;
  return *made;
}

int integer_at(const nb::object& pair, int place) {
  const long value = PyLong_AsLong(nb::object(pair[place]).ptr());
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return static_cast<int>(value);
}

void read_device(nb::handle object, const std::string& name, Borrowed* out) {
  try {
    PyObject* const self = object.ptr();
    const nb::object device =
        nb::steal(PyObject_VectorcallMethod(protocol().device_call.ptr(), &self, 1, nullptr));
    if (!device.is_valid()) throw nb::python_error();
    out->device_type = integer_at(device, 0);
    out->device_id = integer_at(device, 1);
  } catch (const nb::python_error& error) {
    if (!nb::hasattr(object, protocol().device_call))
      refuse_tensor(name, "must be a tensor with __dlpack__, given " + class_name(object),
                    "pass an array of numpy, torch, cupy or jax");
    refuse_export(name, error);
  }
}

// The launch waits for what its stream was given before, so the exporter need not synchronise (-1).
// Of the host there is no stream to name.
nb::object make_capsule(nb::handle object, const Borrowed& on, const std::string& name) {
  const Protocol& say = protocol();
  PyObject* const versioned[] = {object.ptr(), say.version.ptr(), say.no_synchronise.ptr()};
  const nb::tuple& names = on.on_host() ? say.version_name : say.names;
  PyObject* made = PyObject_VectorcallMethod(say.call.ptr(), versioned, 1, names.ptr());
  if (!made && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();  // an exporter of before DLPack 1.0 knows no max_version
    PyObject* const plain[] = {object.ptr(), say.no_synchronise.ptr()};
    made = PyObject_VectorcallMethod(say.call.ptr(), plain, 1,
                                     on.on_host() ? nullptr : say.stream_name.ptr());
  }
  if (!made) refuse_export(name, nb::python_error());
  return nb::steal(made);
}

const DlTensor& tensor_of(const nb::object& capsule, const std::string& name, bool* read_only) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* given =
        static_cast<const DlVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (given->major != kDlpackMajor)
      refuse_tensor(name, "DLPack version must be 1.x, given " + std::to_string(given->major) +
                              "." + std::to_string(given->minor));
    *read_only = (given->flags & kReadOnly) != 0;
    return given->tensor;
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor"))
    return *static_cast<const DlTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  refuse_tensor(
      name, "__dlpack__ must return a capsule that nobody has used, given " + class_name(capsule));
}

std::vector<std::int32_t> copy_integers(nb::handle object, const std::string& name) {
  std::vector<std::int32_t> copied;
  copied.reserve(nb::len(object));
  for (const nb::handle item : object) {
    std::int32_t value = 0;
    if (!PyIndex_Check(item.ptr()) || !nb::try_cast(nb::int_(nb::borrow(item)), value)) {
      throw Refusal{ALM_WORKLOAD_INVALID, name + "[" + std::to_string(copied.size()) + "]",
                    "must be an integer of 32 bits, given " + nb::cast<std::string>(nb::repr(item)),
                    ""};
    }
    copied.push_back(value);
  }
  return copied;
}

struct DtypeRow {
  alm_dtype dtype;
  int bytes;
  const char* name;
};
constexpr DtypeRow kDtypes[] = {{ALM_F16, 2, "f16"},   {ALM_BF16, 2, "bf16"}, {ALM_F32, 4, "f32"},
                                {ALM_E4M3, 1, "e4m3"}, {ALM_E5M2, 1, "e5m2"}, {ALM_I32, 4, "i32"},
                                {ALM_U8, 1, "u8"},     {ALM_I64, 8, "i64"}};

const DtypeRow& row_of(alm_dtype dtype) {
  for (const DtypeRow& row : kDtypes)
    if (row.dtype == dtype) return row;
  return kDtypes[0];
}

}  // namespace

int bytes_of(alm_dtype dtype) {
  return row_of(dtype).bytes;
}

const char* dtype_name(alm_dtype dtype) {
  return row_of(dtype).name;
}

namespace {

// Null data of the host, or of a device, is the library's to judge.
void take(DlTensor given, const char* name, Borrowed* made) {
  made->device_type = given.device_type;
  made->device_id = given.device_id;
  if (made->on_host()) given.device_type = kExternal;
  try {
    made->tensor = tensor_from_dlpack(&given);
  } catch (const Error& error) {
    const std::string field = error.path().substr(std::strlen("dl_tensor"));
    refuse_tensor(name + field, error.cause(), error.remedy());
  }
}

// What __dlpack__ would refuse is left to it, for its own words.
bool needs_gradients(nb::handle object, const Exporter& exporter) {
  static const nb::str* const attribute = new nb::str("requires_grad");
  PyObject* const self = object.ptr();
  const nb::object value =
      nb::steal(exporter.get_gradient
                    ? exporter.get_gradient(exporter.gradient.ptr(), self, object.type().ptr())
                    : PyObject_GetAttr(self, attribute->ptr()));
  if (value.is_valid()) return value.ptr() != Py_False;
  PyErr_Clear();
  return false;
}

}  // namespace

Borrowed borrow(nb::handle object, const char* name) {
  Borrowed made;
  if (object.is_none()) return made;
  const Exporter& exporter = exporter_of(object);
  const ExchangeApi* const api = exporter.api;
  DlTensor view = {};
  if (api && !needs_gradients(object, exporter)) {
    if (api->view(object.ptr(), &view) == 0) {
      made.api = api;
      made.capsule = nb::borrow(object);
      take(view, name, &made);
      return made;
    }
    PyErr_Clear();
  }
  read_device(object, name, &made);
  made.capsule = make_capsule(object, made, name);
  const DlTensor& given = tensor_of(made.capsule, name, &made.read_only);
  if (given.device_type != made.device_type)
    refuse_tensor(name, "__dlpack_device__ says device type " + std::to_string(made.device_type) +
                            ", its capsule " + std::to_string(given.device_type));
  take(given, name, &made);
  return made;
}

alm_index_array Indices::view() const {
  if (!borrowed.given()) return index_array(copied);
  const alm_tensor& tensor = borrowed.tensor;
  return {tensor.data, tensor.shape[0], tensor.strides[0], tensor.dtype};
}

Indices borrow_indices(nb::handle object, const char* name) {
  Indices made;
  if (object.is_none()) return made;
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    made.copied = copy_integers(object, name);
    return made;
  }
  made.borrowed = borrow(object, name);
  if (!made.borrowed.on_host())
    throw Refusal{ALM_WORKLOAD_INVALID, name,
                  "must lie on the host, given DLPack device type " +
                      std::to_string(made.borrowed.device_type),
                  "plan() reads it on the CPU: copy it there once a step"};
  if (made.borrowed.tensor.rank != 1)
    throw Refusal{ALM_WORKLOAD_INVALID, name,
                  "must have one dimension, given " + std::to_string(made.borrowed.tensor.rank),
                  ""};
  return made;
}

std::pair<std::int64_t, std::int64_t> ends_of(nb::handle indptr) {
  try {
    const Indices indices = borrow_indices(indptr, "indptr");
    const alm_index_array array = indices.view();
    if (array.length < 1 || array.dtype != ALM_I32 || array.stride != 1) return {0, 0};
    const std::int32_t last = static_cast<const std::int32_t*>(array.data)[array.length - 1];
    return {array.length - 1, last < 0 ? 0 : last};
  } catch (const Refusal&) {
    return {0, 0};
  }
}

}  // namespace attnloom::python
