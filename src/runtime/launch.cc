// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch.h"

#include <algorithm>

#include "runtime/cache_args.h"
#include "runtime/tensor_checks.h"

namespace attnloom {
namespace {

constexpr std::uint64_t kWorkspaceAlignment =
    256;  // of cuMemAlloc; the plan's tables are read 16 bytes at a time

const PointerParam* find_param(const std::vector<PointerParam>& given, std::string_view name) {
  for (const PointerParam& param : given)
    if (param.name == name) return &param;
  return nullptr;
}

// The text is made on the way out only: a run that succeeds allocates nothing.
Status param_error(const std::string& name, std::string cause, std::string remedy = {}) {
  return tensor_error("params." + name, std::move(cause), std::move(remedy));
}

// Whatever was given must be a pointer param of the spec, once.
Status check_param_names(const Spec& spec, const std::vector<PointerParam>& given) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string& name = given[i].name;
    const Param* known = nullptr;
    for (const Param& param : spec.variant.params)
      if (param.name == name) known = &param;
    if (!known) return param_error(name, "the spec has no param of this name");
    if (!is_pointer(known->type))
      return param_error(name, "is a scalar of type " + std::string(json_name(known->type)),
                         "give it in the workload");
    for (std::size_t j = 0; j < i; ++j)
      if (given[j].name == name) return param_error(name, "was given twice");
  }
  return ok_status();
}

Status fill_params(const Spec& spec, int q_heads, const std::vector<PointerParam>& given,
                   loom::AttentionArgs& args) {
  ATTNLOOM_CHECK(check_param_names(spec, given));
  int slot = 0;
  for (const Param& param : spec.variant.params) {
    if (!is_pointer(param.type)) continue;
    const PointerParam* found = find_param(given, param.name);
    if (!found) return param_error(param.name, "the spec needs this pointer param; none was given");
    const std::int64_t least = param.name == spec.variant.sink ? q_heads : 0;
    Status status = check_flat_tensor(param.name, found->tensor, pointee_of(param.type), least);
    if (!status.ok()) {
      status.path.insert(0, "params.");
      return status;
    }
    args.pointers[slot++] = device_pointer<const void>(found->tensor.data);
  }
  return ok_status();
}

Status fill_queries(const Spec& spec, const Plan& plan, int q_heads,
                    const AttentionTensors& tensors, loom::AttentionArgs& args) {
  const Extent tokens{plan.qo_tokens,
                      true};  // a captured graph keeps one tensor for all its batches
  const Extent heads{q_heads};
  ATTNLOOM_CHECK(check_tensor("q", tensors.q, tensor_type_of(spec.dtype.q),
                              {tokens, heads, {spec.head_dim.qk}}, Access::kVectorRows,
                              Role::kInput));
  ATTNLOOM_CHECK(check_tensor("o", tensors.o, tensor_type_of(spec.dtype.o),
                              {tokens, heads, {spec.head_dim.vo}}, Access::kVectorRows,
                              Role::kOutput));
  args.q = device_pointer<const void>(tensors.q.data);
  args.q_token_stride = tensors.q.strides[0];
  args.q_head_stride = tensors.q.strides[1];
  args.o = device_pointer<void>(tensors.o.data);
  args.o_token_stride = tensors.o.strides[0];
  args.o_head_stride = tensors.o.strides[1];
  if (!tensors.lse.given()) return ok_status();
  if (!spec.variant.softmax)
    return tensor_error("lse", "a variant with softmax false has no log-sum-exp", "leave lse out");
  ATTNLOOM_CHECK(check_tensor("lse", tensors.lse, TensorType::kF32, {tokens, heads},
                              Access::kElements, Role::kOutput));
  args.lse = device_pointer<float>(tensors.lse.data);
  args.lse_token_stride = tensors.lse.strides[0];
  args.lse_head_stride = tensors.lse.strides[1];
  return ok_status();
}

// Ragged K and V, and those of block-sparse rows.
Status fill_ragged(const Spec& spec, const Plan& plan, int kv_heads,
                   const AttentionTensors& tensors, loom::AttentionArgs& args) {
  const TensorType type = tensor_type_of(spec.dtype.kv);
  const Extent tokens{plan.kv_rows, true};
  ATTNLOOM_CHECK(check_tensor("k", tensors.k, type, {tokens, {kv_heads}, {spec.head_dim.qk}},
                              Access::kVectorRows, Role::kInput));
  ATTNLOOM_CHECK(check_tensor("v", tensors.v, type, {tokens, {kv_heads}, {spec.head_dim.vo}},
                              Access::kVectorRows, Role::kInput));
  args.k_token_stride = tensors.k.strides[0];
  args.k_head_stride = tensors.k.strides[1];
  args.v_token_stride = tensors.v.strides[0];
  args.v_head_stride = tensors.v.strides[1];
  return ok_status();
}

// Pages of a pool, or the requests' slots of a padded cache.
Status fill_pages(const Spec& spec, Extent pages, Extent tokens, int kv_heads,
                  const AttentionTensors& tensors, loom::AttentionArgs& args) {
  const TensorType type = tensor_type_of(spec.dtype.kv);
  ATTNLOOM_CHECK(check_tensor("k", tensors.k, type, {pages, tokens, {kv_heads}, {spec.head_dim.qk}},
                              Access::kVectorRows, Role::kInput));
  ATTNLOOM_CHECK(
      check_tensor("v", tensors.v, type,
                   {{tensors.k.shape[0]}, {tensors.k.shape[1]}, {kv_heads}, {spec.head_dim.vo}},
                   Access::kVectorRows, Role::kInput));
  set_page_strides(tensors.k, tensors.v, args);
  return ok_status();
}

// An index array that one layout reads and every other refuses.
Status fill_indices(const Spec& spec, KvLayout layout, std::string_view name,
                    const TensorView& tensor, std::int64_t entries, loom::AttentionArgs& args) {
  if (spec.layout.kv != layout) {
    if (!tensor.given()) return ok_status();
    return tensor_error(name,
                        "is not used by a " + std::string(json_name(spec.layout.kv)) + " layout",
                        "leave it out");
  }
  ATTNLOOM_CHECK(
      check_tensor(name, tensor, TensorType::kI32, {{entries, true}}, Access::kFlat, Role::kInput));
  args.page_indices = device_pointer<const int>(tensor.data);
  return ok_status();
}

Status fill_keys(const Spec& spec, const Plan& plan, int kv_heads, std::int64_t pool_pages,
                 const AttentionTensors& tensors, loom::AttentionArgs& args) {
  switch (spec.layout.kv) {
    case KvLayout::kRagged:
    case KvLayout::kBsr:
      ATTNLOOM_CHECK(fill_ragged(spec, plan, kv_heads, tensors, args));
      break;
    case KvLayout::kPadded:
      ATTNLOOM_CHECK(
          fill_pages(spec, {plan.kv_slots, true}, {plan.kv_rows, true}, kv_heads, tensors, args));
      break;
    case KvLayout::kPaged:
      ATTNLOOM_CHECK(
          fill_pages(spec, {pool_pages, true}, {spec.layout.page_size}, kv_heads, tensors, args));
      break;
  }
  args.k = device_pointer<const void>(tensors.k.data);
  args.v = device_pointer<const void>(tensors.v.data);
  ATTNLOOM_CHECK(fill_indices(spec, KvLayout::kPaged, "page_indices", tensors.page_indices,
                              plan.kv_rows, args));
  return fill_indices(spec, KvLayout::kBsr, "block_indices", tensors.block_indices,
                      plan.block_entries, args);
}

Status fill_mask(const Spec& spec, const Plan& plan, const TensorView& mask,
                 loom::AttentionArgs& args) {
  constexpr DeviceAddress kWordBytes = 4;  // what the kernels read of it at a time
  if (!spec.variant.mask.custom) {
    if (!mask.given()) return ok_status();
    return tensor_error("custom_mask", "the spec's mask.custom is false", "leave it out");
  }
  ATTNLOOM_CHECK(check_flat_tensor("custom_mask", mask, TensorType::kU8, plan.mask_bytes));
  if (mask.data % kWordBytes != 0) {
    return tensor_error("custom_mask", "address must be a multiple of 4 bytes, given remainder " +
                                           std::to_string(mask.data % kWordBytes));
  }
  args.custom_mask = device_pointer<const unsigned char>(mask.data);
  return ok_status();
}

Status fill_scales(const Spec& spec, int kv_heads, const AttentionTensors& tensors,
                   loom::AttentionArgs& args) {
  const UnusedScale unused{"is not used by a variant with kv_scale \"none\"",
                           "leave it out, or set variant.kv_scale"};
  ATTNLOOM_CHECK(set_scale(spec, kv_heads, "k_scale", tensors.k_scale, unused, args.k_scale));
  return set_scale(spec, kv_heads, "v_scale", tensors.v_scale, unused, args.v_scale);
}

// One CTA writes results while another still reads inputs: in place would be a race.
Status check_disjoint(const AttentionTensors& tensors) {
  struct Named {
    std::string_view name;
    const TensorView& tensor;
  };
  const Named outputs[] = {{"o", tensors.o}, {"lse", tensors.lse}};
  const Named inputs[] = {{"q", tensors.q},
                          {"k", tensors.k},
                          {"v", tensors.v},
                          {"k_scale", tensors.k_scale},
                          {"v_scale", tensors.v_scale}};
  for (const Named& output : outputs)
    for (const Named& input : inputs)
      ATTNLOOM_CHECK(check_apart(output.name, output.tensor, input.name, input.tensor));
  return check_apart("lse", tensors.lse, "o", tensors.o);
}

}  // namespace

Result<loom::AttentionArgs> attention_args(const Spec& spec, const Plan& plan, int q_heads,
                                           int kv_heads, std::int64_t pool_pages,
                                           const AttentionTensors& tensors) {
  loom::AttentionArgs args = {};
  if (tensors.workspace == 0 || tensors.workspace % kWorkspaceAlignment != 0)
    return tensor_error(
        "workspace",
        "must be an address that is a multiple of 256 bytes, given " +
            (tensors.workspace == 0
                 ? "null"
                 : "remainder " + std::to_string(tensors.workspace % kWorkspaceAlignment)));
  args.workspace = device_pointer<unsigned char>(tensors.workspace);
  ATTNLOOM_CHECK(fill_queries(spec, plan, q_heads, tensors, args));
  ATTNLOOM_CHECK(fill_keys(spec, plan, kv_heads, pool_pages, tensors, args));
  ATTNLOOM_CHECK(fill_mask(spec, plan, tensors.custom_mask, args));
  ATTNLOOM_CHECK(fill_scales(spec, kv_heads, tensors, args));
  ATTNLOOM_CHECK(check_disjoint(tensors));
  ATTNLOOM_CHECK(fill_params(spec, q_heads, tensors.params, args));
  return args;
}

namespace {

// States may lie anywhere, also in memory of their own, so each is looked at by itself.
TensorView state_of(const TensorView& states, std::int64_t state) {
  TensorView one = states;
  one.data += static_cast<DeviceAddress>(state) * static_cast<DeviceAddress>(states.strides[0]) *
              static_cast<DeviceAddress>(bytes_of(states.type));
  one.shape[0] = 1;
  return one;
}

// check_tensor, but that a state may lie before the one that precedes it.
Status check_states(std::string_view name, const TensorView& states, TensorType type,
                    std::initializer_list<Extent> shape, Access access, Role role) {
  TensorView upwards = states;
  if (states.rank > 0 && states.shape[0] > 1 && states.strides[0] < 0) {
    if (states.strides[0] < -(std::int64_t{1} << 60))
      return tensor_error(std::string(name) + ".strides[0]",
                          "is past 64-bit addresses, given " + std::to_string(states.strides[0]));
    upwards.strides[0] = -states.strides[0];
  }
  ATTNLOOM_CHECK(check_tensor(name, upwards, type, shape, access, role));
  const auto below = static_cast<DeviceAddress>(upwards.strides[0]) *
                     static_cast<DeviceAddress>(std::max<std::int64_t>(states.shape[0] - 1, 0)) *
                     static_cast<DeviceAddress>(bytes_of(type));
  if (states.strides[0] >= 0 || states.shape[0] < 2 || below <= states.data) return ok_status();
  return tensor_error(std::string(name) + ".strides[0]",
                      "leads below address 0, given " + std::to_string(states.strides[0]));
}

bool same_rows(const TensorView& o, const TensorView& state) {
  return o.data == state.data && (o.shape[0] <= 1 || o.strides[0] == state.strides[1]) &&
         (o.shape[1] <= 1 || o.strides[1] == state.strides[2]);
}

// REQUIRES: the tensors passed check_states and check_tensor.
bool is_in_place(const MergeTensors& tensors) {
  for (std::int64_t s = 0; s < tensors.o_in.shape[0]; ++s)
    if (same_rows(tensors.o, state_of(tensors.o_in, s))) return true;
  return false;
}

// A lane reads all states of the elements that it then writes, so o may be a state in place; the
// LSE of a row is read by eight lanes and written by one, so it may not.
Status check_merge_apart(const MergeTensors& tensors, bool in_place) {
  for (std::int64_t s = 0; s < tensors.o_in.shape[0]; ++s) {
    if (!in_place) ATTNLOOM_CHECK(check_apart("o", tensors.o, "o_in", state_of(tensors.o_in, s)));
    ATTNLOOM_CHECK(check_apart("lse", tensors.lse, "o_in", state_of(tensors.o_in, s)));
    ATTNLOOM_CHECK(check_apart("o", tensors.o, "lse_in", state_of(tensors.lse_in, s)));
    ATTNLOOM_CHECK(check_apart("lse", tensors.lse, "lse_in", state_of(tensors.lse_in, s)));
  }
  return check_apart("lse", tensors.lse, "o", tensors.o);
}

}  // namespace

Result<loom::MergeArgs> merge_args(const Spec& spec, const MergeTensors& tensors) {
  const TensorView& o_in = tensors.o_in;
  const Extent any{0, true};
  const TensorType type = tensor_type_of(spec.dtype.o);
  const std::initializer_list<Extent> in_shape = {any, any, any, {spec.head_dim.vo}};
  ATTNLOOM_CHECK(check_states("o_in", o_in, type, in_shape, Access::kVectorRows, Role::kInput));
  const int states = static_cast<int>(o_in.shape[0]);  // free extents were checked to fit int32
  const int tokens = static_cast<int>(o_in.shape[1]);
  const int heads = static_cast<int>(o_in.shape[2]);
  ATTNLOOM_CHECK(check_states("lse_in", tensors.lse_in, TensorType::kF32,
                              {{states}, {tokens}, {heads}}, Access::kElements, Role::kInput));
  ATTNLOOM_CHECK(check_tensor("o", tensors.o, type, {{tokens}, {heads}, {spec.head_dim.vo}},
                              Access::kVectorRows, Role::kOutput));
  if (tensors.lse.given()) {
    ATTNLOOM_CHECK(check_tensor("lse", tensors.lse, TensorType::kF32, {{tokens}, {heads}},
                                Access::kElements, Role::kOutput));
  }
  const bool in_place = is_in_place(tensors);
  if (in_place)
    ATTNLOOM_CHECK(check_states("o_in", o_in, type, in_shape, Access::kVectorRows, Role::kOutput));
  ATTNLOOM_CHECK(check_merge_apart(tensors, in_place));
  loom::MergeArgs args = {};
  args.o_in = device_pointer<const void>(o_in.data);
  args.lse_in = device_pointer<const float>(tensors.lse_in.data);
  args.o = device_pointer<void>(tensors.o.data);
  args.o_in_state_stride = o_in.strides[0];
  args.o_in_token_stride = o_in.strides[1];
  args.o_in_head_stride = o_in.strides[2];
  args.lse_in_state_stride = tensors.lse_in.strides[0];
  args.lse_in_token_stride = tensors.lse_in.strides[1];
  args.lse_in_head_stride = tensors.lse_in.strides[2];
  args.o_token_stride = tensors.o.strides[0];
  args.o_head_stride = tensors.o.strides[1];
  args.states = states;
  args.tokens = tokens;
  args.heads = heads;
  if (!tensors.lse.given()) return args;
  args.lse = device_pointer<float>(tensors.lse.data);
  args.lse_token_stride = tensors.lse.strides[0];
  args.lse_head_stride = tensors.lse.strides[1];
  return args;
}

}  // namespace attnloom
