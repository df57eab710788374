/* SPDX-License-Identifier: Apache-2.0
 *
 * A decode batch of two requests in plain C: open a spec, plan, run, and compare with values worked
 * out by hand.
 *
 * All queries are zero, so every key weighs the same; value j of a request is the number j in every
 * dimension. The output of a request with n keys is then (n - 1) / 2 and its LSE ln n.
 *
 * Runs on the GPU, or on the simulated device where there is none. Prints one line a request; exit
 * status 0 when all values agree.
 */
#include <attnloom/attnloom.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 2, kQueryHeads = 4, kKvHeads = 2, kDim = 64, kKvTokens = 3 + 8 };

static const char kSpec[] =
    "{\"attnloom\": 1, \"kernel\": \"attention\","
    " \"dtype\": {\"q\": \"bf16\", \"kv\": \"bf16\", \"o\": \"bf16\"}, \"head_dim\": {\"qk\": 64, "
    "\"vo\": 64},"
    " \"group_size\": 2, \"layout\": {\"kv\": \"ragged\"}, \"variant\": {\"name\": \"plain\"}}";

/* Stops at the first failure; the system takes everything back. */
static void check(alm_code code, alm_error* error) {
  if (code == ALM_OK) return;
  fprintf(stderr, "%s at '%s': %s (%s)\n", error->name, error->path, error->cause, error->remedy);
  exit(1);
}

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16); /* exact for the small integers used here */
}

static float from_bf16(uint16_t value) {
  const uint32_t bits = (uint32_t)value << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

static alm_tensor dense(void* data, alm_dtype dtype, int rank, int64_t tokens, int64_t heads,
                        int64_t dim) {
  const int64_t shape[3] = {tokens, heads, dim};
  alm_tensor tensor;
  int64_t stride = 1;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.rank = rank;
  for (int i = rank - 1; i >= 0; --i) {
    tensor.shape[i] = shape[i];
    tensor.strides[i] = stride;
    stride *= shape[i];
  }
  return tensor;
}

static void* device_memory(alm_context* context, size_t bytes, const char* label,
                           const void* contents) {
  alm_error* error = NULL;
  void* address = NULL;
  check(alm_memory_allocate(context, bytes, label, &address, &error), error);
  if (contents) check(alm_memory_copy_in(context, address, contents, bytes, &error), error);
  return address;
}

/* Makes the plan object and gives it its memory. */
static alm_plan* make_plan(alm_context* context, alm_kernel* kernel, void** workspace,
                           void** staging) {
  alm_plan_limits limits;
  alm_plan_sizes sizes;
  alm_plan* plan = NULL;
  alm_error* error = NULL;
  memset(&limits, 0, sizeof limits);
  memset(&sizes, 0, sizeof sizes);
  limits.struct_bytes = sizeof limits;
  limits.max_batch = kBatch;
  limits.max_qo_tokens = kBatch;
  limits.q_heads = kQueryHeads;
  limits.kv_heads = kKvHeads;
  sizes.struct_bytes = sizeof sizes;
  check(alm_plan_create(kernel, &limits, &plan, &sizes, &error), error);
  *workspace = device_memory(context, sizes.workspace_bytes, "workspace", NULL);
  *staging = malloc(sizes.staging_bytes);
  check(
      alm_plan_bind(plan, *workspace, sizes.workspace_bytes, *staging, sizes.staging_bytes, &error),
      error);
  return plan;
}

static void update_plan(alm_plan* plan, const int32_t* qo_indptr, const int32_t* kv_indptr) {
  alm_workload workload;
  alm_error* error = NULL;
  memset(&workload, 0, sizeof workload);
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr.data = qo_indptr;
  workload.qo_indptr.length = kBatch + 1;
  workload.kv_indptr.data = kv_indptr;
  workload.kv_indptr.length = kBatch + 1;
  check(alm_plan_update(plan, &workload, NULL, &error), error);
}

/* Compares with the values worked out above; prints one line a request. */
static int compare(const uint16_t* o, const float* lse, const int32_t* kv_indptr) {
  int wrong = 0;
  for (int request = 0; request < kBatch; ++request) {
    const int keys = kv_indptr[request + 1] - kv_indptr[request];
    const float want_o = (float)(keys - 1) / 2;
    const float want_lse = logf((float)keys);
    for (int i = 0; i < kQueryHeads * kDim; ++i)
      wrong += from_bf16(o[request * kQueryHeads * kDim + i]) != want_o; /* exact in bf16 */
    for (int head = 0; head < kQueryHeads; ++head)
      wrong += !(fabsf(lse[request * kQueryHeads + head] - want_lse) < 1e-3f);
    printf("request %d: %d keys, o = %g (want %g), lse = %g (want %g)\n", request, keys,
           from_bf16(o[request * kQueryHeads * kDim]), want_o, lse[request * kQueryHeads],
           want_lse);
  }
  return wrong;
}

int main(void) {
  const int32_t qo_indptr[kBatch + 1] = {0, 1, 2};
  const int32_t kv_indptr[kBatch + 1] = {0, 3, kKvTokens};
  static uint16_t q[kBatch * kQueryHeads * kDim]; /* zero */
  static uint16_t k[kKvTokens * kKvHeads * kDim];
  static uint16_t v[kKvTokens * kKvHeads * kDim];
  static uint16_t o[kBatch * kQueryHeads * kDim];
  static float lse[kBatch * kQueryHeads];
  alm_context* context = NULL;
  alm_kernel* kernel = NULL;
  alm_error* error = NULL;
  alm_attention tensors;
  void* memory[6];
  void* staging = NULL;

  for (int i = 0; i < kKvTokens * kKvHeads * kDim; ++i) {
    const int token = i / (kKvHeads * kDim);
    k[i] = to_bf16(1.0f);
    v[i] = to_bf16((float)(token < 3 ? token : token - 3));
  }
  check(alm_context_create(NULL, &context, &error), error);
  check(alm_kernel_open(context, kSpec, sizeof kSpec - 1, &kernel, &error), error);
  alm_plan* plan = make_plan(context, kernel, &memory[0], &staging);
  memory[1] = device_memory(context, sizeof q, "q", q);
  memory[2] = device_memory(context, sizeof k, "k", k);
  memory[3] = device_memory(context, sizeof v, "v", v);
  memory[4] = device_memory(context, sizeof o, "o", NULL);
  memory[5] = device_memory(context, sizeof lse, "lse", NULL);

  update_plan(plan, qo_indptr, kv_indptr); /* once a step */
  memset(&tensors, 0, sizeof tensors);
  tensors.struct_bytes = sizeof tensors;
  tensors.q = dense(memory[1], ALM_BF16, 3, kBatch, kQueryHeads, kDim);
  tensors.k = dense(memory[2], ALM_BF16, 3, kKvTokens, kKvHeads, kDim);
  tensors.v = dense(memory[3], ALM_BF16, 3, kKvTokens, kKvHeads, kDim);
  tensors.o = dense(memory[4], ALM_BF16, 3, kBatch, kQueryHeads, kDim);
  tensors.lse = dense(memory[5], ALM_F32, 2, kBatch, kQueryHeads, 0);
  check(alm_run(plan, &tensors, NULL, &error), error); /* once a layer */
  check(alm_synchronize(context, NULL, &error), error);
  check(alm_memory_copy_out(context, o, memory[4], sizeof o, &error), error);
  check(alm_memory_copy_out(context, lse, memory[5], sizeof lse, &error), error);
  const int wrong = compare(o, lse, kv_indptr);

  alm_plan_destroy(plan);
  for (int i = 0; i < 6; ++i) alm_memory_free(context, memory[i], NULL);
  free(staging);
  alm_kernel_destroy(kernel);
  alm_context_destroy(context);
  printf("%s\n", wrong == 0 ? "all values agree" : "values differ");
  return wrong == 0 ? 0 : 1;
}
