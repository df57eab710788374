/* SPDX-License-Identifier: Apache-2.0
 *
 * A serving engine's start in plain C: compile behind its back, plan meanwhile with whatever kernel
 * is there, then freeze, so that nothing is compiled while requests are served.
 *
 * Compiles for an H200 and plans on the CPU; needs NVRTC the first time and no GPU. Prints what
 * happens; exit status 0 when the engine is warm.
 */
#include <attnloom/attnloom.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kSpec[] =
    "{\"attnloom\": 1, \"kernel\": \"attention\", \"target\": \"sm_90a\","
    " \"dtype\": {\"q\": \"bf16\", \"kv\": \"bf16\", \"o\": \"bf16\"}, \"head_dim\": {\"qk\": 64, "
    "\"vo\": 64},"
    " \"group_size\": 2, \"layout\": {\"kv\": \"ragged\"}, \"variant\": {\"name\": \"plain\"}}";

/* Stops at the first failure; the system takes everything back. */
static void check(alm_code code, alm_error* error) {
  if (code == ALM_OK) return;
  fprintf(stderr, "%s at '%s': %s (%s)\n", error->name, error->path, error->cause, error->remedy);
  exit(1);
}

/* On a thread of the library. */
static void prepared(void* user, const alm_error* error) {
  *(const char**)user = error ? error->name : "all kernels are there";
}

static alm_index_array indices(const int32_t* values, int64_t length) {
  alm_index_array array;
  memset(&array, 0, sizeof array);
  array.data = values;
  array.length = length;
  return array;
}

/* A prefill of 100 tokens. Returns the code: a plan may have to wait for its kernel. */
static alm_code plan_once(alm_plan* plan, alm_error** error) {
  static const int32_t indptr[2] = {0, 100};
  alm_workload workload;
  memset(&workload, 0, sizeof workload);
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr = indices(indptr, 2);
  workload.kv_indptr = indices(indptr, 2);
  return alm_plan_update(plan, &workload, NULL, error);
}

int main(void) {
  alm_error* error = NULL;
  alm_context* context = NULL;
  alm_kernel* kernel = NULL;
  alm_pending* pending = NULL;
  alm_plan* plan = NULL;
  const char* news = "nothing yet";
  int plans = 0;

  alm_context_options options;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.device = ALM_DEVICE_NONE;
  options.policy = ALM_POLICY_FALLBACK;
  check(alm_context_create(&options, &context, &error), error);
  check(alm_kernel_open(context, kSpec, sizeof kSpec - 1, &kernel, &error), error);

  alm_prepare_options prepare;
  memset(&prepare, 0, sizeof prepare);
  prepare.struct_bytes = sizeof prepare;
  prepare.callback = prepared;
  prepare.user = &news;
  check(alm_kernel_prepare_async(kernel, &prepare, &pending, &error), error);

  alm_plan_limits limits;
  memset(&limits, 0, sizeof limits);
  limits.struct_bytes = sizeof limits;
  limits.max_batch = 1;
  limits.max_qo_tokens = 128;
  limits.q_heads = 4;
  limits.kv_heads = 2;
  alm_plan_sizes sizes;
  memset(&sizes, 0, sizeof sizes);
  sizes.struct_bytes = sizeof sizes;
  check(alm_plan_create(kernel, &limits, &plan, &sizes, &error), error);

  /* Each update takes a kernel that is there, the first waits for one. */
  int over = 0;
  while (!over) {
    check(plan_once(plan, &error), error);
    ++plans;
    const alm_code code = alm_pending_wait(pending, 50, &over, &error);
    if (over) check(code, error);
    alm_error_free(error);
    error = NULL;
  }
  alm_pending_destroy(pending); /* the callback is over now */
  printf("%s after %d plans\n", news, plans);

  check(alm_kernel_prepare(kernel, &error), error); /* loads where there is a device */
  check(alm_context_freeze(context, ALM_FREEZE_FAIL, &error), error);
  check(plan_once(plan, &error), error); /* by the kernel that is wanted */

  alm_plan_destroy(plan);
  alm_kernel_destroy(kernel);
  alm_context_destroy(context);
  printf("warm: nothing is compiled from here on\n");
  return 0;
}
