// SPDX-License-Identifier: Apache-2.0
#include "runtime/cache_launch.h"

#include <cmath>
#include <string>
#include <utility>

#include "runtime/cache_args.h"
#include "runtime/cache_mirrors.h"
#include "runtime/tensor_checks.h"

namespace attnloom {
namespace {

constexpr Extent kAny{0, true};

Status check_pool(const Spec& spec, const TensorView& k_cache, const TensorView& v_cache,
                  const Extent& kv_heads) {
  const TensorType type = tensor_type_of(spec.dtype.kv);
  const Extent page{spec.layout.page_size};
  ATTNLOOM_CHECK(check_tensor("k_cache", k_cache, type, {kAny, page, kv_heads, {spec.head_dim.qk}},
                              Access::kVectorRows, Role::kOutput));
  ATTNLOOM_CHECK(check_tensor("v_cache", v_cache, type,
                              {{k_cache.shape[0]}, page, {k_cache.shape[2]}, {spec.head_dim.vo}},
                              Access::kVectorRows, Role::kOutput));
  // Their ranges may interleave: pools that keep keys and values of a page side by side are usual.
  if (k_cache.data != v_cache.data || k_cache.shape[0] == 0) return ok_status();
  return tensor_error("v_cache", "begins where k_cache does", "pass the values' own memory");
}

template <class Args>
void fill_pool(const TensorView& k_cache, const TensorView& v_cache, Args& args) {
  set_page_strides(k_cache, v_cache, args);
  args.kv_heads = static_cast<int>(k_cache.shape[2]);
  args.pool_pages = static_cast<int>(k_cache.shape[0]);
}

Status fill_rows(const Spec& spec, const AppendTensors& tensors, loom::AppendArgs& args) {
  const TensorType type = tensor_type_of(spec.dtype.q);
  const TensorView& key = tensors.key;
  const Extent kv_heads{tensors.k_cache.shape[2]};
  ATTNLOOM_CHECK(check_tensor("key", key, type, {kAny, kv_heads, {spec.head_dim.qk}},
                              Access::kVectorRows, Role::kInput));
  ATTNLOOM_CHECK(check_tensor("value", tensors.value, type,
                              {{key.shape[0]}, kv_heads, {spec.head_dim.vo}}, Access::kVectorRows,
                              Role::kInput));
  args.key = device_pointer<const void>(key.data);
  args.value = device_pointer<const void>(tensors.value.data);
  args.key_token_stride = key.strides[0];
  args.key_head_stride = key.strides[1];
  args.value_token_stride = tensors.value.strides[0];
  args.value_head_stride = tensors.value.strides[1];
  args.tokens = static_cast<int>(key.shape[0]);  // free extents were checked to fit int32
  return ok_status();
}

Status fill_indices(const AppendTensors& tensors, loom::AppendArgs& args) {
  const auto check = [](std::string_view name, const TensorView& tensor, const Extent& extent) {
    return check_tensor(name, tensor, TensorType::kI32, {extent}, Access::kFlat, Role::kInput);
  };
  ATTNLOOM_CHECK(check("batch_indices", tensors.batch_indices, {args.tokens}));
  ATTNLOOM_CHECK(check("positions", tensors.positions, {args.tokens}));
  ATTNLOOM_CHECK(check("page_indptr", tensors.page_indptr, {1, true}));
  ATTNLOOM_CHECK(check("page_indices", tensors.page_indices, kAny));
  args.batch_indices = device_pointer<const int>(tensors.batch_indices.data);
  args.positions = device_pointer<const int>(tensors.positions.data);
  args.page_indptr = device_pointer<const int>(tensors.page_indptr.data);
  args.page_indices = device_pointer<const int>(tensors.page_indices.data);
  args.batch = static_cast<int>(tensors.page_indptr.shape[0] - 1);
  args.page_index_count = static_cast<int>(tensors.page_indices.shape[0]);
  return ok_status();
}

Status fill_scales(const Spec& spec, const AppendTensors& tensors, loom::AppendArgs& args) {
  const UnusedScale unused{"is not used by a spec of \"kv_scale\": \"none\"", "leave it out"};
  ATTNLOOM_CHECK(set_scale(spec, args.kv_heads, "k_scale", tensors.k_scale, unused, args.k_scale));
  return set_scale(spec, args.kv_heads, "v_scale", tensors.v_scale, unused, args.v_scale);
}

bool same_place(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.strides[0] == b.strides[0] && a.strides[1] == b.strides[1];
}

// Queries that are rotated in place are often a slice of the rows that keys and values are slices
// of, so one token's part is compared with one token's part where the tokens are as far apart.
// REQUIRES: both passed check_tensor with three dimensions.
Status check_apart_in_rows(const TensorView& q_out, std::string_view name,
                           const TensorView& tensor) {
  const std::int64_t row = q_out.strides[0] * bytes_of(q_out.type);
  Status whole = check_apart("q_out", q_out, name, tensor);
  if (whole.ok() || q_out.strides[0] != tensor.strides[0] || row == 0) return whole;
  TensorView one_row = q_out;
  TensorView other = tensor;
  one_row.shape[0] = other.shape[0] = 1;
  const auto distance = static_cast<std::int64_t>(tensor.data - q_out.data) % row;
  // Both neighbours: the other slice may begin behind this one or before it.
  for (const std::int64_t at : {distance, distance < 0 ? distance + row : distance - row}) {
    other.data = q_out.data + static_cast<DeviceAddress>(at);
    ATTNLOOM_CHECK(check_apart("q_out", one_row, name, other));
  }
  return ok_status();
}

Status fill_queries(const Spec& spec, const AppendTensors& tensors, loom::AppendRopeArgs& args) {
  const TensorView& q = tensors.q;
  const TensorView& q_out = tensors.q_out;
  if (!q.given()) {
    if (!q_out.given()) return ok_status();
    return tensor_error("q_out", "is given without q", "give both or none");
  }
  const TensorType type = tensor_type_of(spec.dtype.q);
  ATTNLOOM_CHECK(check_tensor("q", q, type, {{args.append.tokens}, kAny, {spec.head_dim.qk}},
                              Access::kVectorRows, Role::kInput));
  ATTNLOOM_CHECK(check_tensor("q_out", q_out, type,
                              {{args.append.tokens}, {q.shape[1]}, {spec.head_dim.qk}},
                              Access::kVectorRows, Role::kOutput));
  if (!same_place(q, q_out)) ATTNLOOM_CHECK(check_apart("q_out", q_out, "q", q));
  ATTNLOOM_CHECK(check_apart_in_rows(q_out, "key", tensors.key));
  ATTNLOOM_CHECK(check_apart_in_rows(q_out, "value", tensors.value));
  ATTNLOOM_CHECK(check_apart("k_cache", tensors.k_cache, "q", q));
  ATTNLOOM_CHECK(check_apart("v_cache", tensors.v_cache, "q", q));
  ATTNLOOM_CHECK(check_apart("q_out", q_out, "k_cache", tensors.k_cache));
  ATTNLOOM_CHECK(check_apart("q_out", q_out, "v_cache", tensors.v_cache));
  args.q = device_pointer<const void>(q.data);
  args.q_out = device_pointer<void>(q_out.data);
  args.q_token_stride = q.strides[0];
  args.q_head_stride = q.strides[1];
  args.q_out_token_stride = q_out.strides[0];
  args.q_out_head_stride = q_out.strides[1];
  args.q_heads = static_cast<int>(q.shape[1]);
  return ok_status();
}

Status check_rope_number(const char* name, float value) {
  if (std::isfinite(value) && value >= 0.0f) return ok_status();
  return make_error(
      Code::kArgumentInvalid, name,
      "must be finite and greater than 0, or 0 for its default, given " + std::to_string(value));
}

Status refuse_rope_fields(const AppendTensors& tensors) {
  constexpr const char* kCause = "is used by \"kernel\": \"append_rope\" only";
  constexpr const char* kRemedy = "leave it out, or open a spec of that kernel";
  if (tensors.q.given()) return tensor_error("q", kCause, kRemedy);
  if (tensors.q_out.given()) return tensor_error("q_out", kCause, kRemedy);
  for (const auto& [name, value] :
       {std::pair("rope_scale", tensors.rope_scale), std::pair("rope_theta", tensors.rope_theta)}) {
    if (value != 0.0f) return make_error(Code::kArgumentInvalid, name, kCause, kRemedy);
  }
  return ok_status();
}

// One pow() and a product a pair: this runs once a layer. The error of 128 products is 2^-45 of a
// frequency.
Status fill_turns(const Spec& spec, const AppendTensors& tensors, loom::AppendRopeArgs& args) {
  ATTNLOOM_CHECK(check_rope_number("rope_scale", tensors.rope_scale));
  ATTNLOOM_CHECK(check_rope_number("rope_theta", tensors.rope_theta));
  constexpr double kTurn = 6.283185307179586;
  constexpr double kDefaultTheta = 10000.0;
  const double scale = tensors.rope_scale == 0.0f ? 1.0 : tensors.rope_scale;
  const double theta = tensors.rope_theta == 0.0f ? kDefaultTheta : tensors.rope_theta;
  const int rotary_dim = spec.variant.rope->rotary_dim;
  const double ratio = std::pow(theta, -2.0 / rotary_dim);
  double turns = 1.0 / (scale * kTurn);
  for (int i = 0; i < rotary_dim / 2; ++i, turns *= ratio) {
    // Whole turns are none, so the fraction is all that counts and fits 64 bits.
    args.turns[i] = static_cast<unsigned long long>(std::ldexp(turns - std::floor(turns), 64));
  }
  return ok_status();
}

Status check_append_apart(const AppendTensors& tensors) {
  struct Named {
    std::string_view name;
    const TensorView& tensor;
  };
  const Named inputs[] = {{"key", tensors.key},
                          {"value", tensors.value},
                          {"batch_indices", tensors.batch_indices},
                          {"positions", tensors.positions},
                          {"page_indptr", tensors.page_indptr},
                          {"page_indices", tensors.page_indices},
                          {"k_scale", tensors.k_scale},
                          {"v_scale", tensors.v_scale}};
  for (const Named& input : inputs) {
    ATTNLOOM_CHECK(check_apart("k_cache", tensors.k_cache, input.name, input.tensor));
    ATTNLOOM_CHECK(check_apart("v_cache", tensors.v_cache, input.name, input.tensor));
  }
  return ok_status();
}

}  // namespace

Result<loom::AppendRopeArgs> append_args(const Spec& spec, const AppendTensors& tensors) {
  loom::AppendRopeArgs args = {};
  ATTNLOOM_CHECK(check_pool(spec, tensors.k_cache, tensors.v_cache, kAny));
  fill_pool(tensors.k_cache, tensors.v_cache, args.append);
  args.append.k_cache = device_pointer<void>(tensors.k_cache.data);
  args.append.v_cache = device_pointer<void>(tensors.v_cache.data);
  ATTNLOOM_CHECK(fill_rows(spec, tensors, args.append));
  ATTNLOOM_CHECK(fill_indices(tensors, args.append));
  ATTNLOOM_CHECK(fill_scales(spec, tensors, args.append));
  ATTNLOOM_CHECK(check_append_apart(tensors));
  if (spec.variant.rope) {
    ATTNLOOM_CHECK(fill_queries(spec, tensors, args));
    ATTNLOOM_CHECK(fill_turns(spec, tensors, args));
  } else {
    ATTNLOOM_CHECK(refuse_rope_fields(tensors));
  }
  ATTNLOOM_CHECK(check_append_mirrors(
      tensors.host, {args.append.tokens, args.append.batch, args.append.page_index_count,
                     args.append.pool_pages, spec.layout.page_size}));
  return args;
}

Result<loom::PageCopyArgs> page_copy_args(const Spec& spec, const PageCopyTensors& tensors) {
  loom::PageCopyArgs args = {};
  ATTNLOOM_CHECK(check_pool(spec, tensors.k_cache, tensors.v_cache, kAny));
  fill_pool(tensors.k_cache, tensors.v_cache, args);
  ATTNLOOM_CHECK(check_tensor("pairs", tensors.pairs, TensorType::kI32, {kAny, {2}}, Access::kFlat,
                              Role::kInput));
  ATTNLOOM_CHECK(check_apart("k_cache", tensors.k_cache, "pairs", tensors.pairs));
  ATTNLOOM_CHECK(check_apart("v_cache", tensors.v_cache, "pairs", tensors.pairs));
  args.pairs = device_pointer<const int>(tensors.pairs.data);
  args.k_cache = device_pointer<unsigned char>(tensors.k_cache.data);
  args.v_cache = device_pointer<unsigned char>(tensors.v_cache.data);
  args.count = static_cast<int>(tensors.pairs.shape[0]);
  ATTNLOOM_CHECK(check_page_pairs(tensors.host_pairs, args.count, args.pool_pages));
  return args;
}

}  // namespace attnloom
