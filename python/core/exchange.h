// SPDX-License-Identifier: Apache-2.0
// DLPack without capsules: the C function table that torch (2.10 and later) puts on its tensor
// type. A view costs 50 ns where a capsule costs 2 us, and a run takes ten of them.
//
// Everything under the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace attnloom::python {

// The DLPack ABI, written out: its layout is fixed within a major version, and a header would be a
// dependency.
struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t rank;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

inline constexpr std::uint32_t kDlpackMajor = 1;

struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  const ExchangeApi* older;
  void* allocate;
  void* export_owned;
  void* import_owned;
  int (*view)(void* object, DlTensor* out);  // 0, or -1 with a Python error set
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

// What a type exports by.
struct Exporter {
  const ExchangeApi* api = nullptr;  // null where it has no table
  // Its `requires_grad`, where that is a data descriptor (torch's is), to be called as one: looking
  // it up for each tensor of a run costs as much as the view.
  nanobind::object gradient;
  descrgetfunc get_gradient = nullptr;
};

// Of an object's type. Of a subclass only where it changes nothing, as torch's Parameter: others
// may hold no memory of their own. The reference is good until the next call.
const Exporter& exporter_of(nanobind::handle object);

}  // namespace attnloom::python
