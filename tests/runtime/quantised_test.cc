// SPDX-License-Identifier: Apache-2.0
// What the checks before a launch make of an 8-bit cache and of its scales.
#include <catch2/catch.hpp>
#include <initializer_list>
#include <span>
#include <string>

#include "runtime/launch.h"

namespace attnloom {
namespace {

constexpr int kKvHeads = 2;
constexpr int kDim = 64;

TensorView tensor(TensorType type, std::initializer_list<std::int64_t> shape, DeviceAddress data) {
  return dense_tensor(type, std::span(shape.begin(), shape.size()), data);
}

// One query head a KV head, three queries, five keys, ragged.
struct QuantisedCase {
  Spec spec;
  AttentionTensors tensors;

  explicit QuantisedCase(DType kv, KvScale scale) {
    spec.head_dim = {kDim, kDim};
    spec.dtype.kv = kv;
    spec.variant.kv_scale = scale;
    const TensorType type = kv == DType::kE4m3 ? TensorType::kE4m3 : TensorType::kE5m2;
    tensors.q = tensor(TensorType::kBf16, {3, kKvHeads, kDim}, 0x1000);
    tensors.k = tensor(type, {5, kKvHeads, kDim}, 0x10000);
    tensors.v = tensor(type, {5, kKvHeads, kDim}, 0x20000);
    tensors.o = tensor(TensorType::kBf16, {3, kKvHeads, kDim}, 0x4000);
    tensors.workspace = 0x6000;
  }
  Result<loom::AttentionArgs> args() const {
    Plan plan;
    plan.qo_tokens = 3;
    plan.kv_rows = 5;
    return attention_args(spec, plan, kKvHeads, kKvHeads, 0, tensors);
  }
  void refused(const std::string& path, const std::string& cause) const {
    const Result<loom::AttentionArgs> made = args();
    REQUIRE_FALSE(made.ok());
    CHECK(made.status().code == Code::kTensorInvalid);
    CHECK(made.status().path == path);
    INFO(made.status().cause);
    CHECK(made.status().cause.find(cause) != std::string::npos);
  }
};

TEST_CASE("scales of a quantised cache are taken as the spec says, and refused without it") {
  QuantisedCase given(DType::kE4m3, KvScale::kNone);
  REQUIRE(given.args().ok());
  CHECK(given.args()->k_scale == nullptr);
  given.tensors.k_scale = tensor(TensorType::kF32, {1}, 0x8000);
  given.refused("k_scale", "is not used by a variant with kv_scale \"none\"");

  given.spec.variant.kv_scale = KvScale::kTensor;
  given.refused("v_scale", "none was given");
  given.tensors.v_scale = tensor(TensorType::kF32, {1}, 0x9000);
  const auto args = given.args();
  REQUIRE(args.ok());
  CHECK(reinterpret_cast<DeviceAddress>(args->k_scale) == 0x8000);
  CHECK(reinterpret_cast<DeviceAddress>(args->v_scale) == 0x9000);

  given.spec.variant.kv_scale = KvScale::kHead;
  given.refused("k_scale.shape[0]", "must be 2, given 1");
  given.tensors.k_scale = tensor(TensorType::kF32, {kKvHeads}, 0x8000);
  given.tensors.v_scale = tensor(TensorType::kBf16, {kKvHeads}, 0x9000);
  given.refused("v_scale", "dtype must be f32, given bf16");
  given.tensors.v_scale = tensor(TensorType::kF32, {kKvHeads}, 0x4010);
  given.refused("o", "must not overlap v_scale");
}

TEST_CASE("strides of an 8-bit cache are multiples of 16 bytes, not of eight elements") {
  QuantisedCase given(DType::kE5m2, KvScale::kNone);
  given.tensors.v.strides[0] += 16;
  REQUIRE(given.args().ok());
  given.tensors.v.strides[0] -= 8;
  given.refused("v.strides[0]", "must be a multiple of 16 bytes");
  given.tensors.v.type = TensorType::kE4m3;
  given.refused("v", "dtype must be e5m2, given e4m3");
}

}  // namespace
}  // namespace attnloom
