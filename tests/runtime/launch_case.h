// SPDX-License-Identifier: Apache-2.0
// A plan and tensors that fit it, for tests that spoil one of them. Values.
#pragma once

#include <catch2/catch.hpp>

#include "runtime/launch.h"

namespace attnloom::testing {

constexpr int kQueryHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kDim = 64;
constexpr int kPageSize = 16;
constexpr int kPages = 8;

inline TensorView tensor(TensorType type, std::initializer_list<std::int64_t> shape,
                         DeviceAddress data) {
  return dense_tensor(type, std::span(shape.begin(), shape.size()), data);
}

inline Spec spec_of(KvLayout layout) {
  Spec spec;
  spec.head_dim = {kDim, kDim};
  spec.group_size = 2;
  spec.layout.kv = layout;
  if (layout == KvLayout::kPaged) spec.layout.page_size = kPageSize;
  return spec;
}

struct Case {
  Spec spec;
  Plan plan;
  AttentionTensors tensors;

  explicit Case(KvLayout layout = KvLayout::kPaged) : spec(spec_of(layout)) {
    plan.qo_tokens = 3;
    plan.kv_rows = 5;
    tensors.q = tensor(TensorType::kBf16, {3, kQueryHeads, kDim}, 0x1000);
    tensors.k = tensor(TensorType::kBf16, {kPages, kPageSize, kKvHeads, kDim}, 0x100000);
    tensors.v = tensor(TensorType::kBf16, {kPages, kPageSize, kKvHeads, kDim}, 0x200000);
    tensors.o = tensor(TensorType::kBf16, {3, kQueryHeads, kDim}, 0x4000);
    tensors.page_indices = tensor(TensorType::kI32, {5}, 0x5000);
    tensors.workspace = 0x6000;
  }
  Result<loom::AttentionArgs> args() const {
    return attention_args(spec, plan, kQueryHeads, kKvHeads, kPages, tensors);
  }
  void refused(const std::string& path, const std::string& cause) const {
    const Result<loom::AttentionArgs> made = args();
    REQUIRE_FALSE(made.ok());
    CHECK(made.status().code == Code::kTensorInvalid);
    CHECK(made.status().path == path);
    CHECK(made.status().cause.find(cause) != std::string::npos);
  }
};

}  // namespace attnloom::testing
