/* SPDX-License-Identifier: Apache-2.0
 *
 * attnloom.h from C: it compiles as C, and enum numbers and the layout of public structs are what
 * they were. A number that has to change here is a break of the ABI.
 */
#include <attnloom/attnloom.h>
#include <stddef.h>

int alm_header_is_as_published(void);

_Static_assert(ALM_SPEC_INVALID == 1 && ALM_COMPILE_FAILED == 6 && ALM_NOT_CACHED == 13, "codes");
_Static_assert(ALM_CAPTURE_ACTIVE == 20 && ALM_PLAN_STALE == 27 && ALM_ARGUMENT_INVALID == 30,
               "codes");
_Static_assert(ALM_F16 == 1 && ALM_BF16 == 2 && ALM_F32 == 3 && ALM_I32 == 6 && ALM_I64 == 8,
               "dtypes");
_Static_assert(ALM_DEVICE_NONE == 3 && ALM_JIT_NEVER == 1 && ALM_JIT_WARN == 2, "options");
_Static_assert(ALM_POLICY_BLOCK == 1 && ALM_POLICY_NEVER == 4 && ALM_FREEZE_FAIL == 2, "options");
_Static_assert(ALM_PRIORITY_PREWARM == 1, "options");

_Static_assert(offsetof(alm_context_options, struct_bytes) == 0, "first");
_Static_assert(offsetof(alm_context_options, log_level) == 80, "offsets");
_Static_assert(offsetof(alm_context_options, policy) == 120, "offsets");
_Static_assert(offsetof(alm_plan_limits, kv_heads) == 28, "offsets");
_Static_assert(offsetof(alm_plan_limits, policy) == 32, "offsets");
_Static_assert(offsetof(alm_plan_limits, kernel) == 56, "offsets");
_Static_assert(offsetof(alm_plan_limits, no_shared_prefixes) == 60, "offsets");
_Static_assert(offsetof(alm_workload, levels) == 272 && sizeof(alm_level) == 64, "offsets");
_Static_assert(offsetof(alm_prepare_options, user) == 24, "offsets");
_Static_assert(offsetof(alm_plan_sizes, staging_bytes) == 16, "offsets");
_Static_assert(sizeof(alm_index_array) == 32 && sizeof(alm_tensor) == 96, "sizes");
_Static_assert(offsetof(alm_workload, scale) == 144, "offsets");
_Static_assert(offsetof(alm_attention, params) == 584, "offsets");
_Static_assert(offsetof(alm_merge, lse) == 296, "offsets");
_Static_assert(offsetof(alm_append, rope_scale) == 1160 &&
                   offsetof(alm_append, host_page_indices) == 1264,
               "offsets");
_Static_assert(offsetof(alm_page_copy, host_pairs) == 296, "offsets");
_Static_assert(offsetof(alm_page_table, causal) == 148 && offsetof(alm_prefix_tree, causal) == 176,
               "offsets");
_Static_assert(offsetof(alm_dense_mask, mask_bytes) == 80 && offsetof(alm_head_pages, hnd) == 84 &&
                   offsetof(alm_head_blocks, map_bytes) == 144,
               "offsets");
_Static_assert(offsetof(alm_block_sparse_view, custom_mask_bytes) == 152, "offsets");

int alm_header_is_as_published(void) {
  return ALM_ABI_VERSION == 0;
}
