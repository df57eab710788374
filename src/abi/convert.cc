// SPDX-License-Identifier: Apache-2.0
#include "abi/convert.h"

#include <cstdio>
#include <iterator>

namespace attnloom {
namespace {

Status workload_error(const char* name, std::string cause, std::string remedy = {}) {
  return make_error(Code::kWorkloadInvalid, std::string("workload.") + name, std::move(cause),
                    std::move(remedy));
}

Status convert_scalars(const alm_workload& given, std::vector<ScalarParam>* out) {
  if (given.scalar_count > 0 && !given.scalars)
    return workload_error("scalars",
                          "is NULL and scalar_count is " + std::to_string(given.scalar_count));
  out->resize(given.scalar_count);
  for (std::size_t i = 0; i < given.scalar_count; ++i) {
    if (!given.scalars[i].name)
      return workload_error("scalars", "entry " + std::to_string(i) + " has no name");
    (*out)[i].name = given.scalars[i].name;
    (*out)[i].value = given.scalars[i].value;
  }
  return ok_status();
}

Status convert_levels(const alm_workload& given, std::vector<SharedLevel>* out) {
  if (given.level_count > 0 && !given.levels)
    return workload_error("levels",
                          "is NULL and level_count is " + std::to_string(given.level_count));
  out->resize(given.level_count);
  for (std::size_t l = 0; l < given.level_count; ++l) {
    char group[48];  // too long for a std::string that allocates nothing
    std::snprintf(group, sizeof(group), "workload.levels[%zu].", l);
    const alm_level& level = given.levels[l];
    SharedLevel& to = (*out)[l];
    ATTNLOOM_CHECK(convert_array(level.qo_indptr, group, "qo_indptr", &to.qo_indptr));
    ATTNLOOM_CHECK(convert_array(level.page_indptr, group, "page_indptr", &to.page_indptr));
  }
  return ok_status();
}

}  // namespace

// A wrong width or stride would read as plausible numbers: right for the first request, wrong for
// the rest.
Status convert_array(const alm_index_array& given, const char* group, const char* name,
                     std::span<const std::int32_t>* out) {
  const auto error = [&](std::string cause, std::string remedy = {}) {
    return make_error(Code::kWorkloadInvalid, std::string(group) + name, std::move(cause),
                      std::move(remedy));
  };
  const int dtype = number_of(given.dtype);
  if (dtype != ALM_DTYPE_NONE && dtype != ALM_I32) {
    return error("dtype must be i32, given " + tensor_type_text(static_cast<TensorType>(dtype)),
                 "convert the array to int32");
  }
  if (given.length < 0)
    return error("length must not be negative, given " + std::to_string(given.length));
  if (given.stride != 0 && given.stride != 1 && given.length > 1)
    return error("stride must be 1, given " + std::to_string(given.stride),
                 "pass a contiguous copy");
  if (!given.data && given.length > 0)
    return error("data is NULL and length is " + std::to_string(given.length));
  if (address_of(given.data) % alignof(std::int32_t) != 0)
    return error("data must be aligned to 4 bytes");
  *out = {static_cast<const std::int32_t*>(given.data), static_cast<std::size_t>(given.length)};
  return ok_status();
}

Status check_policy(const alm_policy& policy, const char* path) {
  const int number = number_of(policy);
  if (number >= ALM_POLICY_DEFAULT && number <= ALM_POLICY_NEVER) return ok_status();
  return argument_error(path, "must be 0 to 4, given " + std::to_string(number));
}

AcquireOptions acquire_options(alm_policy policy, std::uint32_t timeout_ms) {
  AcquireOptions options;
  options.policy = static_cast<Policy>(policy);
  options.timeout = std::chrono::milliseconds(timeout_ms);
  return options;
}

TensorView tensor_view(const alm_tensor& tensor) {
  TensorView view;
  view.data = address_of(tensor.data);
  view.type = static_cast<TensorType>(number_of(tensor.dtype));
  view.rank = tensor.rank;
  std::copy(std::begin(tensor.shape), std::end(tensor.shape), view.shape);
  std::copy(std::begin(tensor.strides), std::end(tensor.strides), view.strides);
  return view;
}

Status convert_workload(const Spec& spec, const alm_workload* given, Workload* out) {
  alm_workload read;
  ATTNLOOM_CHECK(read_struct(given, "workload", &read));
  ATTNLOOM_CHECK(convert_array(read.qo_indptr, "workload.", "qo_indptr", &out->qo_indptr));
  ATTNLOOM_CHECK(convert_array(read.kv_indptr, "workload.", "kv_indptr", &out->kv_indptr));
  ATTNLOOM_CHECK(
      convert_array(read.last_page_len, "workload.", "last_page_len", &out->last_page_len));
  ATTNLOOM_CHECK(convert_array(read.page_indices, "workload.", "page_indices", &out->page_indices));
  if (!out->page_indices.empty() && read.pool_pages <= 0)
    return workload_error("pool_pages",
                          "is required with page_indices, given " + std::to_string(read.pool_pages),
                          "give the number of pages in k and v");
  out->pool_pages = read.pool_pages;
  ATTNLOOM_CHECK(convert_array(read.kv_start, "workload.", "kv_start", &out->kv_start));
  out->kv_capacity = read.kv_capacity;
  ATTNLOOM_CHECK(convert_array(read.block_indptr, "workload.", "block_indptr", &out->block_indptr));
  ATTNLOOM_CHECK(
      convert_array(read.block_indices, "workload.", "block_indices", &out->block_indices));
  ATTNLOOM_CHECK(convert_levels(read, &out->levels));
  out->scale.reset();
  if (read.scale != 0) out->scale = read.scale;
  out->window_left.reset();
  if (!spec.variant.mask.window_left) out->window_left = read.window_left;
  return convert_scalars(read, &out->scalars);
}

Status convert_attention(const alm_attention* given, AttentionTensors* out) {
  alm_attention read;
  ATTNLOOM_CHECK(read_struct(given, "tensors", &read));
  out->q = tensor_view(read.q);
  out->k = tensor_view(read.k);
  out->v = tensor_view(read.v);
  out->o = tensor_view(read.o);
  out->lse = tensor_view(read.lse);
  out->page_indices = tensor_view(read.page_indices);
  out->block_indices = tensor_view(read.block_indices);
  out->custom_mask = tensor_view(read.custom_mask);
  out->k_scale = tensor_view(read.k_scale);
  out->v_scale = tensor_view(read.v_scale);
  if (read.param_count > 0) ATTNLOOM_CHECK(check_given(read.params, "tensors.params"));
  out->params.resize(read.param_count);
  for (std::size_t i = 0; i < read.param_count; ++i) {
    ATTNLOOM_CHECK(check_given(read.params[i].name, "tensors.params.name"));
    out->params[i].name = read.params[i].name;
    out->params[i].tensor = tensor_view(read.params[i].tensor);
  }
  return ok_status();
}

Status convert_append(const alm_append* given, AppendTensors* out) {
  alm_append read;
  ATTNLOOM_CHECK(read_struct(given, "tensors", &read));
  out->key = tensor_view(read.key);
  out->value = tensor_view(read.value);
  out->batch_indices = tensor_view(read.batch_indices);
  out->positions = tensor_view(read.positions);
  out->page_indptr = tensor_view(read.page_indptr);
  out->page_indices = tensor_view(read.page_indices);
  out->k_cache = tensor_view(read.k_cache);
  out->v_cache = tensor_view(read.v_cache);
  out->k_scale = tensor_view(read.k_scale);
  out->v_scale = tensor_view(read.v_scale);
  out->q = tensor_view(read.q);
  out->q_out = tensor_view(read.q_out);
  out->rope_scale = read.rope_scale;
  out->rope_theta = read.rope_theta;
  AppendMirrors& host = out->host;
  ATTNLOOM_CHECK(
      convert_array(read.host_batch_indices, "", "host_batch_indices", &host.batch_indices));
  ATTNLOOM_CHECK(convert_array(read.host_positions, "", "host_positions", &host.positions));
  ATTNLOOM_CHECK(convert_array(read.host_page_indptr, "", "host_page_indptr", &host.page_indptr));
  return convert_array(read.host_page_indices, "", "host_page_indices", &host.page_indices);
}

Status convert_page_copy(const alm_page_copy* given, PageCopyTensors* out) {
  alm_page_copy read;
  ATTNLOOM_CHECK(read_struct(given, "tensors", &read));
  out->pairs = tensor_view(read.pairs);
  out->k_cache = tensor_view(read.k_cache);
  out->v_cache = tensor_view(read.v_cache);
  return convert_array(read.host_pairs, "", "host_pairs", &out->host_pairs);
}

}  // namespace attnloom
