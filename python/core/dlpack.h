// SPDX-License-Identifier: Apache-2.0
// Tensors and index arrays of any framework, by the DLPack protocol (capsules of 0.x and 1.x):
// nothing is copied and no framework is imported.
//
// A Borrowed or an Indices lives for one call. It holds the exporter's capsule, which keeps the
// memory, and gives it back unused, so that its own destructor frees it; or, where the exporter has
// a C function table (exchange.h), the exporter. Made and destroyed under the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <attnloom/attnloom.hpp>
#include <cstdint>
#include <utility>
#include <vector>

namespace attnloom::python {

namespace nb = nanobind;

// DLPack's numbers of where memory lies.
enum DeviceType : int {
  kHost = 1,
  kCuda = 2,
  kCudaHost = 3,
  kCudaManaged = 13,
};

struct ExchangeApi;

struct Borrowed {
  nb::object capsule;                // or the exporter itself, where no capsule was needed
  const ExchangeApi* api = nullptr;  // of such an exporter
  alm_tensor tensor = {};
  int device_type = 0;
  int device_id = 0;
  bool read_only = false;

  bool given() const { return capsule.is_valid(); }
  bool on_host() const { return device_type == kHost || device_type == kCudaHost; }
};

// REQUIRES: `name` is the argument's name, for refusals. None gives a Borrowed without a tensor.
Borrowed borrow(nb::handle object, const char* name);

// int32 on the host: a list or tuple of integers, which is copied, or an array, which is not.
struct Indices {
  Borrowed borrowed;
  std::vector<std::int32_t> copied;

  alm_index_array view() const;
};
Indices borrow_indices(nb::handle object, const char* name);

// (entries but the first, last entry) of an indptr: requests and tokens, or (0, 0) where something
// is wrong with it, which the library says then.
std::pair<std::int64_t, std::int64_t> ends_of(nb::handle indptr);

int bytes_of(alm_dtype dtype);
const char* dtype_name(alm_dtype dtype);  // as a spec spells it

}  // namespace attnloom::python
