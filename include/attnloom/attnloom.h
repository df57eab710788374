/* SPDX-License-Identifier: Apache-2.0
 *
 * attnloom.h - the C interface of Attnloom, whole.
 *
 * Conventions
 *  1. Handles (alm_context, alm_kernel, alm_plan, alm_block_sparse) are opaque. Whoever creates one
 * destroys it, after everything that was made from it. Destroying NULL does nothing.
 *  2. A function that can fail returns alm_code; 0 is success. Its last parameter may be NULL or
 *     point to an alm_error* that receives the details on failure (free with alm_error_free) and
 *     NULL on success.
 *  3. Text goes in as pointer and length in bytes (UTF-8, need not end in NUL); text comes out as
 *     alm_text, freed with alm_text_free.
 *  4. Every public struct begins with struct_bytes = sizeof(the struct); fields are only ever added
 *     at the end. Zero the struct first: 0 or NULL in a field means its default.
 *  5. Enum numbers never change.
 *  6. Threads: contexts and kernels may be used from any number of threads; a plan from one at a
 *     time.
 *  7. Device memory: pointers are addresses of the context's device. The library allocates none
 *     after alm_kernel_open; the caller passes workspace and staging of the sizes that
 *     alm_plan_create reports. One workspace serves one stream at a time. alm_memory_* are for
 *     tools, tests and the simulated device.
 *  8. The library never prints, exits, asserts on input or reads the environment after
 *     alm_context_create. Logs go to the context's callback.
 *  9. Index arrays are int32. Strides are in elements. q, k, v and o: base address and all strides
 *     but the last are multiples of 16 bytes, the last stride is 1. No two elements of an output
 * may share memory, nor may o and lse share any with q, k or v.
 * 10. Numbers: scale * q.k -> logits_transform -> mask -> softmax; accumulation in fp32; LSE is the
 *     natural logarithm. A row without keys has o = 0 and lse = -inf.
 *
 * Not offered: training, Windows, devices older than compute capability 8.0.
 */
#ifndef ATTNLOOM_ATTNLOOM_H_
#define ATTNLOOM_ATTNLOOM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ALM_API __attribute__((visibility("default")))
#else
#define ALM_API
#endif

/* Gives an enum the 32 bits in C++ that it has in C. Without them a number outside a short
 * enum's range would be undefined in C++, and bad input could not be refused. */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 202311L)
#define ALM_ENUM_BASE : int32_t
#else
#define ALM_ENUM_BASE
#endif

#define ALM_ABI_VERSION 0

typedef enum alm_code ALM_ENUM_BASE {
  ALM_OK = 0,
  ALM_SPEC_INVALID = 1,
  ALM_SPEC_UNSUPPORTED = 2,
  ALM_TEMPLATE = 3,
  ALM_COMPILER_MISSING = 4,
  ALM_COMPILER_VERSION = 5,
  ALM_COMPILE_FAILED = 6,
  ALM_RESOURCE_LIMIT = 7,
  ALM_COMPILE_TIMEOUT = 8,
  ALM_CANCELLED = 9,
  ALM_OUT_OF_MEMORY = 10,
  ALM_CACHE_CORRUPT = 11,
  ALM_CACHE_IO = 12,
  ALM_NOT_CACHED = 13,
  ALM_UNTRUSTED = 14,
  ALM_REMOTE = 15,
  ALM_NO_DRIVER = 16,
  ALM_ARCH_MISMATCH = 17,
  ALM_DRIVER_TOO_OLD = 18,
  ALM_LOAD_FAILED = 19,
  ALM_CAPTURE_ACTIVE = 20,
  ALM_LAUNCH = 21,
  ALM_INTERNAL = 22,
  ALM_WORKLOAD_INVALID = 23,
  ALM_TENSOR_INVALID = 24,
  ALM_PLAN_BOUND = 25,
  ALM_PLAN_MISMATCH = 26,
  ALM_PLAN_STALE = 27,
  ALM_FORKED = 28,
  ALM_NO_DEVICE = 29,
  ALM_ARGUMENT_INVALID = 30
} alm_code;

typedef enum alm_dtype ALM_ENUM_BASE {
  ALM_DTYPE_NONE = 0,
  ALM_F16 = 1,
  ALM_BF16 = 2,
  ALM_F32 = 3,
  ALM_E4M3 = 4,
  ALM_E5M2 = 5,
  ALM_I32 = 6,
  ALM_U8 = 7,
  ALM_I64 = 8 /* recognised so that it can be refused by name */
} alm_dtype;

typedef enum alm_device ALM_ENUM_BASE {
  ALM_DEVICE_AUTO = 0, /* cuda when there is a driver and a device, else the simulator */
  ALM_DEVICE_CUDA = 1,
  ALM_DEVICE_SIMULATOR = 2,
  ALM_DEVICE_NONE = 3 /* compile, cache and plan only, for the target that the spec names */
} alm_device;

typedef enum alm_jit ALM_ENUM_BASE {
  ALM_JIT_ALLOW = 0,
  ALM_JIT_NEVER = 1, /* a kernel that no cache layer holds is NOT_CACHED */
  ALM_JIT_WARN = 2   /* it is compiled, with a warning that names it */
} alm_jit;

/* What a call does that needs a kernel which no cache layer holds. A compile that began goes on
 * whoever stops waiting for it, and lands in memory and cache. */
typedef enum alm_policy ALM_ENUM_BASE {
  ALM_POLICY_DEFAULT = 0, /* the context's; of a context: block */
  ALM_POLICY_BLOCK = 1,   /* compiles and waits; after policy_timeout_ms ALM_COMPILE_TIMEOUT */
  ALM_POLICY_ASYNC = 2,   /* has it compiled; ALM_COMPILE_TIMEOUT until it is there */
  /* Has it compiled; meanwhile alm_plan_update chooses among the kernels of the set that are
   * compiled or cached, and a later update takes the one that is wanted. Without any, and where
   * no plan chooses: block. */
  ALM_POLICY_FALLBACK = 3,
  ALM_POLICY_NEVER = 4 /* ALM_NOT_CACHED */
} alm_policy;

typedef enum alm_freeze ALM_ENUM_BASE {
  ALM_FREEZE_NONE = 0,
  ALM_FREEZE_WARN = 1, /* a compile is made, logged as a warning and counted */
  ALM_FREEZE_FAIL = 2  /* a compile is refused as ALM_NOT_CACHED and counted */
} alm_freeze;

typedef enum alm_priority ALM_ENUM_BASE {
  ALM_PRIORITY_REQUEST = 0,
  ALM_PRIORITY_PREWARM = 1 /* behind everything that was requested */
} alm_priority;

typedef struct alm_context alm_context;
typedef struct alm_kernel alm_kernel;
typedef struct alm_plan alm_plan;
typedef struct alm_pending alm_pending;

typedef struct alm_error {
  alm_code code;
  const char* name;   /* "SPEC_INVALID" */
  const char* path;   /* the caller's field, "$.variant.mask.causl"; may be "" */
  const char* cause;  /* one line */
  const char* remedy; /* one line; may be "" */
  int retryable;      /* the same call may succeed later */
} alm_error;

typedef struct alm_text {
  const char* data; /* NUL after the last byte */
  size_t bytes;
} alm_text;

ALM_API int alm_abi_version(void);
ALM_API const char* alm_version(void); /* "0.1.0" */
ALM_API const char* alm_code_name(alm_code code);
ALM_API void alm_error_free(alm_error* error);
ALM_API void alm_text_free(alm_text* text);

/* ---- context ---- */

/* level: 0 debug, 1 info, 2 warning, 3 error. `message` has no line end and lives for the call
 * only. May be called from any thread that is inside a call of this library. */
typedef void (*alm_log_callback)(void* user, int level, const char* message);

typedef struct alm_context_options {
  size_t struct_bytes;
  alm_device device;
  const char* simulator_profile; /* "h200" (default) or "a100" */
  uint64_t simulator_seed;       /* order of warps and CTAs */
  /* Default: ATTNLOOM_CACHE_DIR, XDG_CACHE_HOME/attnloom, HOME/.cache/attnloom. */
  const char* cache_dir;
  /* Directories and bundles (PATH or PATH#sha256=HEX), colon-separated. Default: ATTNLOOM_CACHE_RO.
   */
  const char* read_only_caches;
  /* Library file or its folder. Default: ATTNLOOM_NVRTC, then the search of docs/DEPLOY.md. */
  const char* nvrtc;
  alm_jit jit; /* default: ATTNLOOM_JIT=allow|warn|never */
  alm_log_callback log;
  void* log_user;
  int log_level; /* least level passed on; default 0 means warnings (2), negative everything */
  /* Node-local folder of compile locks. Default: ATTNLOOM_LOCK_DIR, then the system's. */
  const char* lock_dir;
  const char* python_paths; /* colon-separated site-packages folders that may hold an NVRTC wheel */
  /* File of public keys; entries outside cache_dir then need a signature (docs/SECURITY.md).
   * Default: ATTNLOOM_TRUST_KEYS. */
  const char* trust_keys;
  const char* cache_max_size; /* "512M"; default: ATTNLOOM_CACHE_MAX_SIZE, else "2G"; least "64M" */
  alm_policy policy;          /* of calls that name none; default: block */
  uint32_t policy_timeout_ms; /* of block and of fallback without a kernel; 0: no limit */
  uint32_t compile_timeout_ms; /* of one compile, ALM_COMPILE_TIMEOUT; default 60000 */
  /* Compiles at a time. Default: ATTNLOOM_JOBS, else by cores and free memory, at most 8. */
  uint32_t jobs;
  /* Kernels kept in memory, loaded or not, and the bytes of their images: past either, those are
   * unloaded that no alm_kernel holds and no capture took in, least recently used first.
   * Defaults: 1024 kernels, 256 MiB. */
  uint32_t max_loaded_kernels;
  uint64_t max_loaded_bytes;
  /* File that gets a JSON line for each kernel when it is first acquired, for `attnloom manifest
   * from-log`. Default: ATTNLOOM_ACCESS_LOG, else none. */
  const char* access_log;
} alm_context_options;

/* options may be NULL. Opens no driver: the first call that needs the device does. A place that is
 * named here or by a variable and cannot be used is an error. */
ALM_API alm_code alm_context_create(const alm_context_options* options, alm_context** context,
                                    alm_error** error);
ALM_API void alm_context_destroy(alm_context* context);
/* After warm-up: from now on a compile that would begin warns or fails, and names spec and
 * request_key. Cached kernels are found and loaded as before; compiles that began go on. `how`
 * replaces what an earlier call said. */
ALM_API alm_code alm_context_freeze(alm_context* context, alm_freeze how, alm_error** error);
/* One JSON object: device, nvrtc, cache root and why it was chosen, counters (hits, misses,
 * compiles, loads, launches). */
ALM_API alm_code alm_context_describe(alm_context* context, alm_text** json, alm_error** error);

typedef enum alm_statistics_format ALM_ENUM_BASE {
  ALM_STATISTICS_JSON = 0,      /* one object */
  ALM_STATISTICS_PROMETHEUS = 1 /* the text format that Prometheus scrapes */
} alm_statistics_format;

/* What the context did since it was made, by cache layer; docs/DEPLOY.md lists the names. */
ALM_API alm_code alm_context_statistics(alm_context* context, alm_statistics_format format,
                                        alm_text** text, alm_error** error);

/* ---- kernels ---- */

/* Opens a spec (docs/SPEC.md). Compiles nothing yet: alm_kernel_prepare or the first
 * alm_plan_update that needs a kernel does, or finds it in the cache. */
ALM_API alm_code alm_kernel_open(alm_context* context, const char* spec_json, size_t spec_bytes,
                                 alm_kernel** kernel, alm_error** error);
/* Launches of its kernels must be over, or captured: past the context's limits they are unloaded.
 */
ALM_API void alm_kernel_destroy(alm_kernel* kernel);
/* Compiles or finds, and loads, every kernel of the set: call it before a stream capture. */
ALM_API alm_code alm_kernel_prepare(alm_kernel* kernel, alm_error** error);

/* Called exactly once: with NULL when every kernel of the set is there, else with the error of the
 * first that is not; `error` lives for the call only. By a thread of the library, by
 * alm_pending_cancel or alm_pending_destroy (ALM_CANCELLED), by alm_context_destroy, or before
 * alm_kernel_prepare_async returns. May call any function of this library but
 * alm_context_destroy. */
typedef void (*alm_prepared_callback)(void* user, const alm_error* error);

typedef struct alm_prepare_options {
  size_t struct_bytes;
  alm_priority priority;
  alm_prepared_callback callback; /* may be NULL */
  void* user;
} alm_prepare_options;

/* Has every kernel of the set compiled that no layer holds, and returns at once. Nothing is loaded:
 * a load could break the capture of another thread. alm_kernel_prepare, or the first update that
 * needs a kernel, loads it, and compiles nothing then. options may be NULL. `pending` may be NULL:
 * then nobody can wait or cancel. Errors of the compiles go to callback and alm_pending_wait. */
ALM_API alm_code alm_kernel_prepare_async(alm_kernel* kernel, const alm_prepare_options* options,
                                          alm_pending** pending, alm_error** error);
/* What the callback is told. Not over after timeout_ms (negative: no limit, 0: no wait):
 * ALM_COMPILE_TIMEOUT, and *over is 0. `over` may be NULL. From any thread. */
ALM_API alm_code alm_pending_wait(alm_pending* pending, int64_t timeout_ms, int* over,
                                  alm_error** error);
/* Ends it as ALM_CANCELLED unless it is over. Compiles that nobody else waits for are stopped, soon
 * rather than now. From any thread. */
ALM_API void alm_pending_cancel(alm_pending* pending);
/* Cancels, and returns when the callback is over; the callback itself may call it. No other call
 * may use `pending` meanwhile. Before its context is destroyed. */
ALM_API void alm_pending_destroy(alm_pending* pending);

/* One JSON object: the spec with defaults, and for each kernel of the set its family, tile classes,
 * request_key, and once it was acquired key, source (compiled|disk|memory|readonly), registers,
 * spills, shared bytes. */
ALM_API alm_code alm_kernel_describe(alm_kernel* kernel, alm_text** json, alm_error** error);

/* ---- plan ---- */

typedef struct alm_plan_limits {
  size_t struct_bytes;
  int32_t max_batch;
  int64_t max_qo_tokens; /* over the whole batch */
  int32_t q_heads;
  int32_t kv_heads;
  alm_policy
      policy; /* of this plan's updates; default: the context's. Fallback needs more memory */
  uint32_t policy_timeout_ms; /* read where `policy` is given */
  /* SMs whose CTAs a launch may fill, the rest being left to other work; 0: all of the device. The
   * driver decides on which SMs they run. */
  int32_t sm_budget;
  int32_t max_ctas; /* of a launch; 0: all that are resident at once on the budget */
  /* 1: a request's results have the same bits alone and in any batch, under any limits (with the
   * same `kernel`, or none) and any budget. Costs speed and workspace (docs/PLANNER.md). */
  int32_t batch_invariant;
  /* 1: for runs that are captured. One kernel serves all updates: `kernel`, else by the limits that
   * of single tokens where max_qo_tokens is at most max_batch, otherwise the joint one. It is
   * compiled and loaded here, and policy fallback is block. */
  int32_t graph;
  int32_t kernel; /* 0: any; n: only the n-th of the set as alm_kernel_describe lists it */
  /* 1: prefixes that requests share are neither looked for nor read once for all of them, and the
   * workspace holds no room for their states (docs/PLANNER.md, "Shared prefixes"). */
  int32_t no_shared_prefixes;
} alm_plan_limits;

typedef struct alm_plan_sizes {
  size_t struct_bytes;
  size_t workspace_bytes; /* device memory, 256-byte aligned */
  size_t staging_bytes;   /* host memory, 16-byte aligned, best page-locked; holds two plans */
} alm_plan_sizes;

/* An int32 array on the host. Other dtypes and strides are refused by name. */
typedef struct alm_index_array {
  const void* data;
  int64_t length;
  int64_t stride;  /* elements; 0 means 1 */
  alm_dtype dtype; /* ALM_DTYPE_NONE means ALM_I32 */
} alm_index_array;

typedef struct alm_scalar {
  const char* name;
  double value;
} alm_scalar;

/* Query tokens that share keys: group i is tokens [qo_indptr[i], qo_indptr[i + 1]) of the batch,
 * whole requests, and the page rows of all of them go on with the same page_indptr[i + 1] -
 * page_indptr[i] whole pages behind those of the levels before. */
typedef struct alm_level {
  alm_index_array qo_indptr;   /* [groups + 1], up to all query tokens */
  alm_index_array page_indptr; /* [groups + 1] */
} alm_level;

typedef struct alm_workload {
  size_t struct_bytes;
  alm_index_array qo_indptr; /* [batch + 1] query tokens */
  alm_index_array kv_indptr; /* [batch + 1] paged: entries of the page indices; else KV tokens */
  alm_index_array last_page_len; /* [batch] paged only */
  /* Paged only, optional host mirror: then every index is checked against pool_pages, and prefixes
   * that requests share are found and read once where that pays. */
  alm_index_array page_indices;
  int64_t pool_pages;        /* pages in k and v; required with page_indices */
  float scale;               /* > 0; 0 means 1/sqrt(head_dim.qk), negative is refused */
  int32_t window_left;       /* read when the spec says "runtime" */
  const alm_scalar* scalars; /* every scalar param of the spec */
  size_t scalar_count;
  alm_index_array kv_start; /* [batch] padded only: first token in the slot; none: all 0 */
  int64_t kv_capacity;      /* padded only: tokens of a slot; 0: those of k's second dimension */
  alm_index_array block_indptr; /* bsr only: [rows of blocks + 1] entries of the block indices; a
                                   row is block[0] query tokens of one request, requests in order */
  /* Bsr only, optional host mirror: then every block is checked against the request's keys. */
  alm_index_array block_indices;
  /* Paged only: prefixes known to be shared, the outermost first; they are taken instead of looking
   * for any. The page indices stay those of each request's whole row. */
  const alm_level* levels;
  size_t level_count;
} alm_workload;

/* Fixes the bounds; makes the two events that guard the staging memory. */
ALM_API alm_code alm_plan_create(alm_kernel* kernel, const alm_plan_limits* limits, alm_plan** plan,
                                 alm_plan_sizes* sizes, alm_error** error);
ALM_API void alm_plan_destroy(alm_plan* plan);
/* Gives the plan its memory, once, before the first update. */
ALM_API alm_code alm_plan_bind(alm_plan* plan, void* workspace, size_t workspace_bytes,
                               void* staging, size_t staging_bytes, alm_error** error);
/* Plans on the CPU and starts one asynchronous copy to the workspace on `stream`. Once a step, for
 * all layers. Not while `stream` is being captured (ALM_CAPTURE_ACTIVE). After a run was captured,
 * a workload is refused that a replay could not serve: ALM_PLAN_MISMATCH where it wants another
 * kernel, ALM_PLAN_BOUND where a captured tensor has no room for it. */
ALM_API alm_code alm_plan_update(alm_plan* plan, const alm_workload* workload, void* stream,
                                 alm_error** error);
/* For debugging; waits for the stream. ALM_PLAN_STALE when planning `workload` now would give
 * another plan than the last update did, or when the workspace holds another update: a replay would
 * then compute with old lengths. */
ALM_API alm_code alm_plan_check(alm_plan* plan, const alm_workload* workload, void* stream,
                                alm_error** error);
/* The last update as JSON: queues, merge map, makespan and ideal. */
ALM_API alm_code alm_plan_describe(alm_plan* plan, alm_text** json, alm_error** error);

/* ---- block-sparse rows: what every sparse format becomes ----
 *
 * A pattern is rows of block_rows query tokens of one request, each a list of columns of
 * block_columns of the request's keys, as layout "bsr" takes them; blocks that not all tokens of
 * their row see whole keep a bit for each token and key. Index data on the host only: K and V are
 * neither copied nor moved, and no device is used. docs/BLOCK_SPARSE.md says what each format means
 * and how K, V and q are to be viewed.
 *
 * Errors are ALM_WORKLOAD_INVALID and name the array, the entry, and the request or head. A handle
 * never changes, so any number of threads may read it. */
typedef struct alm_block_sparse alm_block_sparse;

/* Every query token of a request sees all of its keys. */
typedef struct alm_ragged_keys {
  size_t struct_bytes;
  alm_index_array qo_indptr; /* [batch + 1] query tokens */
  alm_index_array kv_indptr; /* [batch + 1] key tokens */
} alm_ragged_keys;

/* Lists that exist already. */
typedef struct alm_block_lists {
  size_t struct_bytes;
  alm_index_array qo_indptr;
  alm_index_array kv_indptr;
  alm_index_array block_indptr;  /* as in alm_workload */
  alm_index_array block_indices; /* required */
} alm_block_lists;

/* One request of all query tokens over the keys of the whole pool. Block sizes of 0: one query
 * token, and as many keys as leave no slot behind a last token in a block. */
typedef struct alm_page_table {
  size_t struct_bytes;
  alm_index_array qo_indptr;     /* [batch + 1] query tokens */
  alm_index_array kv_indptr;     /* [batch + 1] entries of page_indices */
  alm_index_array page_indices;  /* no page twice in a request */
  alm_index_array last_page_len; /* [batch] */
  int64_t pool_pages;
  int32_t page_size;
  int32_t causal; /* not 0: a query token sees the keys up to its own, at the request's end */
} alm_page_table;

/* A prefix (radix) tree over one store of keys: a request sees the tokens of all nodes from its
 * root to its own. One request of all query tokens over the store. */
typedef struct alm_prefix_tree {
  size_t struct_bytes;
  alm_index_array qo_indptr; /* [batch + 1] query tokens */
  alm_index_array node;      /* [batch] where each request ends */
  alm_index_array parent;    /* [nodes] -1: a root */
  alm_index_array key_begin; /* [nodes] first key row of the node's tokens */
  alm_index_array key_count; /* [nodes] */
  int64_t keys;              /* rows of the store */
  int32_t causal;            /* as in alm_page_table */
} alm_prefix_tree;

/* Speculative decoding: the query tokens of a request are a tree of drafts whose own keys lie
 * behind its context. Each sees the context, its ancestors and itself. */
typedef struct alm_draft_trees {
  size_t struct_bytes;
  alm_index_array draft_indptr; /* [batch + 1] query tokens */
  alm_index_array parent;       /* [tokens] number within the request, -1: the context */
  alm_index_array context_len;  /* [batch] */
} alm_draft_trees;

typedef struct alm_dense_mask {
  size_t struct_bytes;
  alm_index_array qo_indptr;
  alm_index_array kv_indptr;
  const uint8_t* mask; /* a byte of 0 or 1 for each, [q_len][kv_len] of each request in turn */
  int64_t mask_bytes;
} alm_dense_mask;

/* Importance masks (Quest): for each query token and KV head, the pages that it picks, by their
 * place in the request's part of the page table. Query row token * kv_heads + head, and key rows
 * of one head. Block sizes of 0: one query row, as of alm_page_table (hnd) or one key. */
typedef struct alm_head_pages {
  size_t struct_bytes;
  const alm_page_table* pages; /* causal must be 0 */
  alm_index_array pick_indptr; /* [query tokens * kv_heads + 1] entries of picks */
  alm_index_array picks;
  int32_t kv_heads;
  int32_t hnd; /* not 0: in the pool heads come before the tokens of a page */
} alm_head_pages;

/* Blocks of sizes that vary along both axes and with the head, of one sequence. KV head h becomes
 * request h. Block sizes of 0: the largest that needs no bits. */
typedef struct alm_head_blocks {
  size_t struct_bytes;
  alm_index_array row_indptr;    /* [kv_heads + 1] entries of row_sizes */
  alm_index_array row_sizes;     /* query tokens */
  alm_index_array column_indptr; /* [kv_heads + 1] entries of column_sizes */
  alm_index_array column_sizes;  /* keys */
  const uint8_t* map; /* a byte of 0 or 1 for each, [rows][columns] of each head in turn */
  int64_t map_bytes;
} alm_head_blocks;

ALM_API alm_code alm_block_sparse_from_ragged(const alm_ragged_keys* ragged, int32_t block_rows,
                                              int32_t block_columns, alm_block_sparse** sparse,
                                              alm_error** error);
ALM_API alm_code alm_block_sparse_from_lists(const alm_block_lists* lists, int32_t block_rows,
                                             int32_t block_columns, alm_block_sparse** sparse,
                                             alm_error** error);
ALM_API alm_code alm_block_sparse_from_pages(const alm_page_table* pages, int32_t block_rows,
                                             int32_t block_columns, alm_block_sparse** sparse,
                                             alm_error** error);
ALM_API alm_code alm_block_sparse_from_prefix_tree(const alm_prefix_tree* tree, int32_t block_rows,
                                                   int32_t block_columns, alm_block_sparse** sparse,
                                                   alm_error** error);
ALM_API alm_code alm_block_sparse_from_draft_trees(const alm_draft_trees* drafts,
                                                   int32_t block_rows, int32_t block_columns,
                                                   alm_block_sparse** sparse, alm_error** error);
ALM_API alm_code alm_block_sparse_from_mask(const alm_dense_mask* mask, int32_t block_rows,
                                            int32_t block_columns, alm_block_sparse** sparse,
                                            alm_error** error);
ALM_API alm_code alm_block_sparse_from_head_pages(const alm_head_pages* picks, int32_t block_rows,
                                                  int32_t block_columns, alm_block_sparse** sparse,
                                                  alm_error** error);
ALM_API alm_code alm_block_sparse_from_head_blocks(const alm_head_blocks* heads, int32_t block_rows,
                                                   int32_t block_columns, alm_block_sparse** sparse,
                                                   alm_error** error);
/* The same pattern in other blocks, for example of as many rows as fill a query tile. */
ALM_API alm_code alm_block_sparse_reblock(const alm_block_sparse* sparse, int32_t block_rows,
                                          int32_t block_columns, alm_block_sparse** reblocked,
                                          alm_error** error);
ALM_API void alm_block_sparse_destroy(alm_block_sparse* sparse);

typedef struct alm_block_sparse_view {
  size_t struct_bytes;
  int32_t block_rows; /* layout.block of the spec */
  int32_t block_columns;
  /* The four arrays of alm_workload. They live as long as the handle. */
  alm_index_array qo_indptr;
  alm_index_array kv_indptr;
  alm_index_array block_indptr;
  alm_index_array block_indices; /* and, copied to the device, of alm_attention */
  int64_t partial_blocks;        /* not 0: the spec needs mask.custom */
  int64_t custom_mask_bytes;
} alm_block_sparse_view;

/* Fills the caller's struct, as much of it as struct_bytes says. */
ALM_API alm_code alm_block_sparse_read(const alm_block_sparse* sparse, alm_block_sparse_view* view,
                                       alm_error** error);
/* The whole pattern as custom_mask of alm_attention takes it; what no row lists is 0. */
ALM_API alm_code alm_block_sparse_custom_mask(const alm_block_sparse* sparse, void* mask,
                                              size_t mask_bytes, alm_error** error);
/* Whether a mask says the same: else ALM_WORKLOAD_INVALID with the first request, query token and
 * key that differ. */
ALM_API alm_code alm_block_sparse_check_mask(const alm_block_sparse* sparse,
                                             const alm_dense_mask* mask, alm_error** error);

/* ---- run ---- */

typedef struct alm_tensor {
  void* data; /* device address */
  alm_dtype dtype;
  int32_t rank;
  int64_t shape[5];
  int64_t strides[5]; /* elements */
} alm_tensor;

/* Fills `tensor` from a DLTensor of the DLPack ABI (any 0.x/1.x), which stays the owner. */
ALM_API alm_code alm_tensor_from_dlpack(const void* dl_tensor, alm_tensor* tensor,
                                        alm_error** error);

typedef struct alm_pointer_param {
  const char* name;
  alm_tensor tensor;
} alm_pointer_param;

typedef struct alm_attention {
  size_t struct_bytes;
  alm_tensor q; /* [qo_tokens][q_heads][head_dim.qk] */
  /* Ragged and bsr [kv_tokens][kv_heads][head_dim.qk]; padded [batch][capacity][..][..]; paged
   * [pages][page_size][..][..]. */
  alm_tensor k;
  /* As k with head_dim.vo. A cache with heads before tokens: same shape, its own strides. */
  alm_tensor v;
  alm_tensor o;            /* [qo_tokens][q_heads][head_dim.vo] */
  alm_tensor lse;          /* f32 [qo_tokens][q_heads]; dtype 0: not wanted */
  alm_tensor page_indices; /* int32 on the device, paged only */
  const alm_pointer_param* params;
  size_t param_count;
  /* int32 on the device, bsr only: of each row of blocks its columns, which number the request's
   * keys in blocks of block[1]; in any order, none twice. */
  alm_tensor block_indices;
  /* u8 on the device, with mask.custom only: a bit for each query token and key, 1 keeps; row-major
   * [q_len][kv_len], lowest bit of a byte first, each request from a byte of its own. The address
   * is a multiple of 4. */
  alm_tensor custom_mask;
  /* f32 [1] with kv_scale "tensor", [kv_heads] with "head", else dtype 0; finite and > 0. A key is
   * what is stored times k_scale, a value what is stored times v_scale. */
  alm_tensor k_scale;
  alm_tensor v_scale;
} alm_attention;

/* Launches the plan's kernel: no lock, allocation, synchronisation or environment. May be captured
 * into a graph, which then serves every later update: replays compute with the lengths and scalars
 * of the last one. */
ALM_API alm_code alm_run(alm_plan* plan, const alm_attention* tensors, void* stream,
                         alm_error** error);

typedef struct alm_merge {
  size_t struct_bytes;
  /* [states][tokens][heads][head_dim.vo]. States may lie anywhere, the stride between them may be
   * negative: two in memory of their own are the first's address and their distance. */
  alm_tensor o_in;
  alm_tensor lse_in; /* f32 [states][tokens][heads], as o_in */
  alm_tensor o;      /* [tokens][heads][head_dim.vo]; may be one of the states in place, with its
                        strides; nothing else may overlap */
  alm_tensor lse;    /* f32 [tokens][heads]; dtype 0: not wanted */
} alm_merge;

/* Merges attention states with a kernel opened from a spec of "kernel": "merge". */
ALM_API alm_code alm_merge_run(alm_kernel* kernel, const alm_merge* tensors, void* stream,
                               alm_error** error);

/* ---- the cache: kernels that need no plan ---- */

typedef struct alm_append {
  size_t struct_bytes;
  alm_tensor key;   /* [tokens][kv_heads][head_dim.qk] */
  alm_tensor value; /* [tokens][kv_heads][head_dim.vo] */
  /* int32 on the device. Row i goes to the place of token positions[i] of request
   * batch_indices[i]: slot positions[i] % page_size of page
   * page_indices[page_indptr[batch_indices[i]] + positions[i] / page_size]. A negative batch index
   * marks a row that is not used. A row that names a request, page or position that is not there
   * is left out as well; nothing else is ever written. No two rows may name one place. */
  alm_tensor batch_indices; /* [tokens] */
  alm_tensor positions;     /* [tokens] */
  alm_tensor page_indptr;   /* [batch + 1] */
  alm_tensor page_indices;
  alm_tensor k_cache; /* [pages][page_size][kv_heads][head_dim.qk], any strides */
  alm_tensor v_cache; /* as k_cache with head_dim.vo; may interleave with it */
  /* f32 [1] with kv_scale "tensor", [kv_heads] with "head", else dtype 0. What is stored is the
   * number divided by its scale. */
  alm_tensor k_scale;
  alm_tensor v_scale;
  /* append_rope only: queries of the same tokens to be rotated along, or dtype 0. q_out may be q
   * itself. Rows that are left out keep q_out as it is. */
  alm_tensor q; /* [tokens][q_heads][head_dim.qk] */
  alm_tensor q_out;
  /* append_rope only: pair i of the first rotary_dim elements turns by
   * position / rope_scale * rope_theta^(-2i / rotary_dim). */
  float rope_scale; /* 0 means 1 */
  float rope_theta; /* 0 means 10000 */
  /* Optional copies of the four index arrays. With them an entry that would be left out, and two
   * rows of one place, are refused by name. */
  alm_index_array host_batch_indices;
  alm_index_array host_positions;
  alm_index_array host_page_indptr;
  alm_index_array host_page_indices;
} alm_append;

/* Appends to a paged cache with a kernel opened from a spec of "kernel": "append" or "append_rope".
 * May be captured into a graph like alm_run; rope_scale and rope_theta are then fixed. */
ALM_API alm_code alm_append_run(alm_kernel* kernel, const alm_append* tensors, void* stream,
                                alm_error** error);

typedef struct alm_page_copy {
  size_t struct_bytes;
  /* int32 [count][2] on the device: page to read, page to write. A pair with a page that is not
   * there, or twice the same, copies nothing. A page that one pair writes may be in no other pair:
   * they run in any order. */
  alm_tensor pairs;
  alm_tensor k_cache;         /* [pages][page_size][kv_heads][head_dim.qk], any strides */
  alm_tensor v_cache;         /* as k_cache with head_dim.vo; may interleave with it */
  alm_index_array host_pairs; /* optional copy of pairs: then all this is checked */
} alm_page_copy;

/* Copies whole pages, all heads of keys and values, with a kernel opened from a spec of
 * "kernel": "page_copy". */
ALM_API alm_code alm_page_copy_run(alm_kernel* kernel, const alm_page_copy* tensors, void* stream,
                                   alm_error** error);

/* ---- memory, for tools, tests and the simulated device ---- */

/* At least one byte. Addresses that no allocation holds are ALM_ARGUMENT_INVALID. */
ALM_API alm_code alm_memory_allocate(alm_context* context, size_t bytes, const char* label,
                                     void** address, alm_error** error);
ALM_API alm_code alm_memory_free(alm_context* context, void* address, alm_error** error);
ALM_API alm_code alm_memory_copy_in(alm_context* context, void* to, const void* from, size_t bytes,
                                    alm_error** error);
ALM_API alm_code alm_memory_copy_out(alm_context* context, void* to, const void* from, size_t bytes,
                                     alm_error** error);
/* Page-locked memory of the host, of which copies are asynchronous: for staging. At least one byte,
 * aligned to 64 bytes; without a GPU it is plain memory. */
ALM_API alm_code alm_memory_allocate_host(alm_context* context, size_t bytes, void** address,
                                          alm_error** error);
ALM_API alm_code alm_memory_free_host(alm_context* context, void* address, alm_error** error);
/* Waits for the stream. On the simulator returns ALM_LAUNCH when it found a fault since the last
 * call; the cause names the first. */
ALM_API alm_code alm_synchronize(alm_context* context, void* stream, alm_error** error);

#ifdef __cplusplus
}
#endif

#endif /* ATTNLOOM_ATTNLOOM_H_ */
