// SPDX-License-Identifier: Apache-2.0
#include "abi/boundary.h"
#include "abi/convert.h"
#include "abi/handles.h"

using namespace attnloom;

namespace {

PlanLimits convert_limits(const alm_plan_limits& read) {
  PlanLimits limits;
  limits.max_batch = read.max_batch;
  limits.max_qo_tokens = read.max_qo_tokens;
  limits.q_heads = read.q_heads;
  limits.kv_heads = read.kv_heads;
  limits.sm_count = read.sm_budget;
  limits.max_ctas = read.max_ctas;
  limits.batch_invariant = read.batch_invariant != 0;
  limits.share_prefixes = read.no_shared_prefixes == 0;
  return limits;
}

PlanOptions convert_options(const alm_plan_limits& read) {
  PlanOptions options;
  options.policy = acquire_options(read.policy, read.policy_timeout_ms);
  options.graph = read.graph != 0;
  options.kernel = read.kernel - 1;
  return options;
}

Status check_flag(std::int32_t flag, const char* path) {
  if (flag == 0 || flag == 1) return ok_status();
  return argument_error(path, "must be 0 or 1, given " + std::to_string(flag));
}

// What 0 stands for is the plan's own choice.
Status check_limits(const alm_plan_limits& read) {
  ATTNLOOM_CHECK(check_policy(read.policy, "limits.policy"));
  ATTNLOOM_CHECK(check_flag(read.batch_invariant, "limits.batch_invariant"));
  ATTNLOOM_CHECK(check_flag(read.graph, "limits.graph"));
  ATTNLOOM_CHECK(check_flag(read.no_shared_prefixes, "limits.no_shared_prefixes"));
  if (read.kernel >= 0) return ok_status();
  return argument_error("limits.kernel", "must be 0 or more, given " + std::to_string(read.kernel));
}

// Writes no more than the caller's struct holds.
void give_sizes(const PlanObject& plan, alm_plan_sizes* sizes) {
  alm_plan_sizes filled = {};
  filled.struct_bytes = sizes->struct_bytes;
  filled.workspace_bytes = plan.workspace_bytes();
  filled.staging_bytes = plan.staging_bytes();
  std::memcpy(sizes, &filled, std::min(sizes->struct_bytes, sizeof(filled)));
}

}  // namespace

alm_code alm_plan_create(alm_kernel* kernel, const alm_plan_limits* limits, alm_plan** plan,
                         alm_plan_sizes* sizes, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(plan, "plan"));
    *plan = nullptr;
    ATTNLOOM_CHECK(check_given(kernel, "kernel"));
    alm_plan_sizes checked;
    ATTNLOOM_CHECK(read_struct(sizes, "sizes", &checked));
    alm_plan_limits read;
    ATTNLOOM_CHECK(read_struct(limits, "limits", &read));
    ATTNLOOM_CHECK(check_limits(read));
    ATTNLOOM_TRY(auto made,
                 PlanObject::create(kernel->kernels, convert_limits(read), convert_options(read)));
    give_sizes(*made, sizes);
    *plan = new alm_plan{std::move(made), {}, {}};
    return ok_status();
  });
}

void alm_plan_destroy(alm_plan* plan) {
  delete plan;
}

alm_code alm_plan_bind(alm_plan* plan, void* workspace, size_t workspace_bytes, void* staging,
                       size_t staging_bytes, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(plan, "plan"));
    return plan->plan->bind(address_of(workspace), workspace_bytes, staging, staging_bytes);
  });
}

alm_code alm_plan_update(alm_plan* plan, const alm_workload* workload, void* stream,
                         alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(plan, "plan"));
    ATTNLOOM_CHECK(convert_workload(plan->plan->kernels().spec(), workload, &plan->workload));
    return plan->plan->update(plan->workload, stream);
  });
}

alm_code alm_plan_check(alm_plan* plan, const alm_workload* workload, void* stream,
                        alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(plan, "plan"));
    Workload converted;
    ATTNLOOM_CHECK(convert_workload(plan->plan->kernels().spec(), workload, &converted));
    return plan->plan->check(converted, stream);
  });
}

alm_code alm_plan_describe(alm_plan* plan, alm_text** json, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(plan, "plan"));
    ATTNLOOM_CHECK(check_given(json, "json"));
    if (!plan->plan->plan())
      return make_error(Code::kPlanStale, "", "the plan was not updated yet",
                        "call alm_plan_update first");
    return give_text(plan->plan->describe().dump(), json);
  });
}

alm_code alm_run(alm_plan* plan, const alm_attention* tensors, void* stream, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(plan, "plan"));
    ATTNLOOM_CHECK(convert_attention(tensors, &plan->tensors));
    return plan->plan->run(plan->tensors, stream);
  });
}
