// SPDX-License-Identifier: Apache-2.0
// DLTensor of the DLPack ABI, written out: its layout has not changed since 0.2, and a header would
// be a dependency.
#include "abi/boundary.h"
#include "abi/convert.h"

using namespace attnloom;

namespace {

struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t rank;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  const std::int64_t* shape;
  const std::int64_t* strides;  // NULL: dense
  std::uint64_t byte_offset;
};

struct DlTypeRow {
  int code;
  int bits;
  alm_dtype dtype;
};

// Codes: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 float8_e4m3fn, 12 float8_e5m2.
constexpr DlTypeRow kTypes[] = {{2, 16, ALM_F16},  {4, 16, ALM_BF16}, {2, 32, ALM_F32},
                                {10, 8, ALM_E4M3}, {12, 8, ALM_E5M2}, {0, 32, ALM_I32},
                                {1, 8, ALM_U8},    {6, 8, ALM_U8},    {0, 64, ALM_I64}};

// CUDA, CUDA host, external (the simulator's addresses), CUDA managed: what a kernel may follow.
constexpr int kDeviceTypes[] = {2, 3, 12, 13};
constexpr int kMaxRank = 5;

Status dlpack_error(const char* path, std::string cause) {
  return make_error(Code::kTensorInvalid, path, std::move(cause));
}

Result<alm_dtype> dtype_of(const DlTensor& given) {
  for (const DlTypeRow& row : kTypes)
    if (given.type_lanes == 1 && given.type_code == row.code && given.type_bits == row.bits)
      return row.dtype;
  return dlpack_error("dl_tensor.dtype", "code " + std::to_string(given.type_code) + " with " +
                                             std::to_string(given.type_bits) + " bits and " +
                                             std::to_string(given.type_lanes) +
                                             " lanes is not one of f16, bf16, f32, "
                                             "e4m3fn, e5m2, i32, u8, i64");
}

Status convert(const DlTensor& given, alm_tensor* out) {
  ATTNLOOM_TRY(const alm_dtype dtype, dtype_of(given));
  if (std::find(std::begin(kDeviceTypes), std::end(kDeviceTypes), given.device_type) ==
      std::end(kDeviceTypes)) {
    return dlpack_error("dl_tensor.device", "must be a CUDA device, given DLPack device type " +
                                                std::to_string(given.device_type));
  }
  if (given.rank < 0 || given.rank > kMaxRank)
    return dlpack_error("dl_tensor.ndim", "must be 0 to 5, given " + std::to_string(given.rank));
  *out = {};
  out->data = static_cast<char*>(given.data) + given.byte_offset;
  out->dtype = dtype;
  out->rank = given.rank;
  // Strides of a tensor without elements say nothing: numpy 2.4 gives 0, a dense row has 1.
  const bool empty =
      std::find(given.shape, given.shape + given.rank, 0) != given.shape + given.rank;
  std::int64_t dense = 1;
  for (int i = given.rank - 1; i >= 0; --i) {
    out->shape[i] = given.shape[i];
    out->strides[i] = given.strides && !empty ? given.strides[i] : dense;
    dense *= given.shape[i];
  }
  return ok_status();
}

}  // namespace

alm_code alm_tensor_from_dlpack(const void* dl_tensor, alm_tensor* tensor, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(dl_tensor, "dl_tensor"));
    ATTNLOOM_CHECK(check_given(tensor, "tensor"));
    return convert(*static_cast<const DlTensor*>(dl_tensor), tensor);
  });
}
