// SPDX-License-Identifier: Apache-2.0
// The plan block as plain structs, written by src/plan on the host and read by every kernel: the
// one file that both sides include, so it uses built-in types only (NVRTC has no stdint.h).
//
// A plan block lies at the start of the caller's workspace and is copied there as it is, counters
// included (as zero):
//   PlanHeader | CtaQueue[cta_count] | RequestRow[] | MergeTile[] | counter int[merge_count] |
//   WorkItem[] | StateRun[] | SharedToken[] | SharedMember[]
// behind it, never copied: partial states, float[partial rows][head_dim_vo] and float[partial
// rows]. All offsets are bytes from the start of the workspace and multiples of 16; they are fixed
// when the plan's limits are, so a captured launch stays valid when the plan changes.
#pragma once

namespace loom {

constexpr unsigned kPlanMagic = 0x4d4f4f4cu;  // "LOOM"
constexpr int kPlanVersion = 3;
constexpr int kMaxScalars = 16;  // scalar functor params
constexpr int kMaxPointers = 8;  // pointer functor params

struct PlanHeader {
  unsigned magic;
  int version;
  unsigned long long generation;  // of the plan object; a debug check compares it with the host's
  int cta_count;
  int item_count;
  int request_count;  // entries of the request table
  int merge_count;
  int q_heads;
  int kv_heads;
  float scale;      // of q.k, before any transform
  int window_left;  // tokens; -1 is off. Read only where the spec says "runtime"
  unsigned queues_offset;
  unsigned requests_offset;
  unsigned merges_offset;
  unsigned counters_offset;
  unsigned items_offset;
  int lanes;  // CTAs of a gang
  // With these two what every kernel reads lies in two sectors of 32 bytes.
  unsigned long long partial_o_offset;
  unsigned long long partial_lse_offset;
  unsigned state_runs_offset;  // behind the items, so these three move from plan to plan
  unsigned shared_tokens_offset;
  unsigned shared_members_offset;
  unsigned padding[3];
  unsigned scalars[kMaxScalars];  // bits of the scalar params in the order of the spec
};
static_assert(sizeof(PlanHeader) % 16 == 0, "tables behind the header are read 16 bytes at a time");

// The queue of one CTA. Neighbouring CTAs are gangs of `lanes`: they walk the same items, each on a
// KV head of its own, so an item is written and copied once for all of them.
struct CtaQueue {
  int begin;  // its items: [begin, end)
  int end;
  int lane;  // within the gang
  int padding;
};
static_assert(sizeof(CtaQueue) == 16, "one 16-byte load");

// Of the queues, always. A constant, because a CTA without work then reads 32 bytes and no header
// (of 396 CTAs 364 have none in a decode of 1 x 4096 on one head), and the others wait once less.
constexpr unsigned kQueuesOffset = sizeof(PlanHeader);

// One request of the batch, or with block-sparse rows one row of blocks of a request: the query
// tokens that share a list of keys. Items count keys along `walk_len`; positions that masks and
// functors see are always those within the request.
//
// Or a tile of query tokens of several requests (`member_count` of them) that begin with the same
// keys: the keys are those of the request `batch`, the tokens are listed (SharedToken), and qo_len
// is 0, so that all of them come behind all keys.
struct alignas(16) RequestRow {
  int batch;     // the request's number
  int qo_begin;  // first row in q and o of the request; shared: first of its SharedMembers
  int qo_len;    // query tokens of the request
  int q_first;   // query tokens of this entry, counted within the request: [q_first, q_end)
  int q_end;
  int kv_begin;      // ragged, bsr: first row in k and v; padded: first token within the request's
                     // slot; paged: first entry in the page indices
  int kv_len;        // keys of the request
  int walk_len;      // keys to walk: kv_len, or with bsr the listed blocks one behind the other
  int list_begin;    // bsr: first entry in the block indices; shared: first of its SharedTokens
  int member_count;  // shared: requests whose rows it holds; else 0
  long long mask_begin;  // first byte of the request's custom mask
};
static_assert(sizeof(RequestRow) == 48, "three 16-byte loads");

// A query token of a shared entry: its row in q, and its position in its own request.
struct SharedToken {
  int token;
  int position;
};
static_assert(sizeof(SharedToken) == 8, "one 8-byte load");

// A request of a shared entry: an item of the entry is one more state of the request's output tile.
struct SharedMember {
  int request;  // index of its RequestRow
  int merge;    // index of its MergeTile on KV head 0; those of the other heads follow
};
static_assert(sizeof(SharedMember) == 8, "one 8-byte load");

// A gang's unit of work: a query tile against a range of KV tokens, on one KV head a lane. What
// lane n does differs in three words: kv_head + n, partial_row + n * the rows of the tile class,
// merge + n.
struct alignas(16) WorkItem {
  int request;   // index of its RequestRow
  int q_row;     // first packed row: token of the request * group_size + head within the group
  int kv_head;   // of lane 0, as partial_row and merge are
  int kv_begin;  // tokens of the walk; a multiple of the class's KV tile
  int kv_end;
  int tile_class;   // index into the kernel's classes
  int partial_row;  // first row of this item's partial state; -1: the item is alone and writes the
                    // output
  int merge;        // index of its MergeTile (shared: of its first member's); -1 as above
};
static_assert(sizeof(WorkItem) == 32, "two 16-byte loads");

// An output tile that several items share. Their partial states lie in plan order, lanes * class
// rows apart, as those of a gang's lanes lie between them; whoever raises the counter to `count`
// merges them in that order and sets it back to 0.
struct MergeTile {
  int partial_row;  // of the first state; of a request with shared prefixes ~(its first StateRun)
  int count;        // of states
};
static_assert(sizeof(MergeTile) == 8, "one 8-byte load");

// States of an output tile that one entry's chunks leave, for all KV heads: that of chunk c on head
// h begins at partial row `row` + (c * KV heads + h) * rows.
struct StateRun {
  int row;
  int rows;  // of the tile class that wrote them
  int chunks;
  int padding;
};
static_assert(sizeof(StateRun) == 16, "one 16-byte load");

// What a launch of an attention kernel is given: pointers and strides (elements), nothing that a
// plan may change.
struct AttentionArgs {
  unsigned char* workspace;
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse;               // or null
  const int* page_indices;  // paged: pages; bsr: blocks; else null
  long long q_token_stride, q_head_stride;
  // Page strides: of a page; padded: of a request's slot.
  long long k_page_stride, k_token_stride, k_head_stride;
  long long v_page_stride, v_token_stride, v_head_stride;
  long long o_token_stride, o_head_stride;
  long long lse_token_stride, lse_head_stride;
  const void* pointers[kMaxPointers];  // pointer params in the order of the spec
  const unsigned char* custom_mask;    // or null; bits in little order, a request from a byte
  // Of a quantised cache: one number or [kv_heads], as the spec says; null without scales. Not in
  // the plan block, because one plan serves all layers and each layer has its own.
  const float* k_scale;
  const float* v_scale;
};

// A tensor map in the device's own encoding, as a kernel takes it.
struct alignas(64) MapBytes {
  unsigned char bytes[128];
};

// What a launch of attention_wgmma is given. A map's dimensions are, of queries [column, head of
// the group, KV head, token], of keys and values [column, token, KV head, page]: a ragged tensor is
// one page, the pages of padded keys are the requests' slots.
struct MappedAttentionArgs {
  AttentionArgs attention;
  MapBytes q;
  MapBytes k;
  MapBytes v;
};
static_assert(sizeof(MappedAttentionArgs) == 640, "the maps begin at multiples of 64 bytes");

// What a launch of the merge kernel is given: `states` states of every (token, head) row become
// one.
struct MergeArgs {
  const void* o_in;     // [states][tokens][heads][head_dim_vo]
  const float* lse_in;  // [states][tokens][heads]
  void* o;              // [tokens][heads][head_dim_vo]
  float* lse;           // [tokens][heads] or null
  long long o_in_state_stride, o_in_token_stride, o_in_head_stride;
  long long lse_in_state_stride, lse_in_token_stride, lse_in_head_stride;
  long long o_token_stride, o_head_stride;
  long long lse_token_stride, lse_head_stride;
  int states;
  int tokens;
  int heads;
  int padding;
};

// What a launch of append is given: row i of key and value goes to the cache place of token
// positions[i] of request batch_indices[i]. The bounds are here because the four index arrays are
// only known on the device: a row that names no place is left out.
struct AppendArgs {
  const void* key;           // [tokens][kv_heads][head_dim_qk]
  const void* value;         // [tokens][kv_heads][head_dim_vo]
  void* k_cache;             // [pool_pages][page_size][kv_heads][head_dim_qk]
  void* v_cache;             // [pool_pages][page_size][kv_heads][head_dim_vo]
  const int* batch_indices;  // [tokens]; negative: the row is not used
  const int* positions;      // [tokens]
  const int* page_indptr;    // [batch + 1]
  const int* page_indices;   // [page_index_count]
  const float* k_scale;      // [1] or [kv_heads]; null where the cache is not scaled
  const float* v_scale;
  long long key_token_stride, key_head_stride;
  long long value_token_stride, value_head_stride;
  long long k_page_stride, k_token_stride, k_head_stride;
  long long v_page_stride, v_token_stride, v_head_stride;
  int tokens;
  int kv_heads;
  int batch;
  int page_index_count;
  int pool_pages;
  int padding;
};

constexpr int kMaxRotaryDim = 256;

// The same with rotation; queries of the same tokens may be rotated along.
struct AppendRopeArgs {
  AppendArgs append;
  const void* q;  // [tokens][q_heads][head_dim_qk], or null with q_heads 0
  void* q_out;
  long long q_token_stride, q_head_stride;
  long long q_out_token_stride, q_out_head_stride;
  int q_heads;
  int padding;
  // By how much of a full turn a pair rotates for each position, in 2^-64 of a turn: position times
  // this wraps exactly, so that the angle of position 1000000 is as exact as that of position 1.
  unsigned long long turns[kMaxRotaryDim / 2];
};

// What a launch of page_copy is given.
struct PageCopyArgs {
  const int* pairs;  // [count][2]: page to read, page to write
  unsigned char* k_cache;
  unsigned char* v_cache;
  long long k_page_stride, k_token_stride, k_head_stride;  // elements
  long long v_page_stride, v_token_stride, v_head_stride;
  int count;
  int kv_heads;
  int pool_pages;
  int padding;
};

// Where one logit, output element or row stands, and what a launch of the functors kernel is given
// (functors.cuh).
struct FunctorPlace {
  int batch;
  int q_pos;  // of a row: its pos
  int kv_pos;
  int q_head;  // of a row: its head
  int kv_head;
  int q_len;
  int kv_len;
  int dim;  // outputs only
};

// Whose functors a launch runs; `count` is in logits, output elements or rows.
enum class FunctorKind : int { kLogits, kOutputs, kQueries, kKeys, kValues };

struct FunctorArgs {
  AttentionArgs
      attention;  // workspace (a PlanHeader with the scalars) and pointers; the rest is null
  const FunctorPlace* places;  // [count]
  const float* in;             // [count], of rows [count][dim]
  const float* lse;            // [count], outputs only
  float* out;                  // as `in`
  int* kept;                   // [count], logits only
  int count;
  FunctorKind kind;
};

}  // namespace loom
