// SPDX-License-Identifier: Apache-2.0
// A case file: one spec, one workload, its inputs and what is expected of it (docs/CASES.md; DESIGN
// §10 is the contract). Used by the CLI, the tests and bug reports.
//
// A CaseFile is a value that owns all its arrays; workload() is a view of it. Thread-safe once
// made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/workload.h"
#include "spec/field_origin.h"
#include "spec/spec.h"

namespace attnloom {

inline constexpr int kCaseVersion = 1;

// A tensor in logical order, [tokens][heads][dim], the requests one after the other.
struct CaseTensor {
  std::int64_t shape[3] = {};
  std::vector<std::uint16_t> bits;  // in the spec's dtype; 8-bit ones in the low byte
  std::vector<double> values;       // what the bits mean
};

// K or V as the kernel finds it: ragged and bsr [tokens][heads][dim], paged
// [pages][page_size][heads][dim], padded [requests][capacity][heads][dim].
// The order of memory (NHD or HND) is in the strides. Slots that no request owns are NaN.
struct CacheImage {
  std::vector<std::byte> bytes;
  int rank = 0;
  std::int64_t shape[4] = {};
  std::int64_t strides[4] = {};  // elements
};

struct CasePointerParam {
  std::string name;
  ParamType type = ParamType::kPtrF32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // in the param's type
  std::vector<double> values;    // what the bytes mean
};

// Groups of query tokens that begin with the same pages (plan/workload.h, SharedLevel).
struct CaseLevel {
  std::vector<std::int32_t> qo_indptr;
  std::vector<std::int32_t> page_indptr;
};

struct CaseExpect {
  std::vector<double> o;    // [tokens][q_heads][head_dim.vo], or empty: not expected
  std::vector<double> lse;  // [tokens][q_heads], or empty
  double atol = 0;
  double rtol = 0;
};

struct CaseFile {
  Spec spec;
  FieldOrigins field_lines;           // of the spec's functors, counted in the case file
  std::vector<std::string> composed;  // shipped variants that the spec is composed of
  bool own_functors = false;          // beside theirs
  int q_heads = 0;
  int kv_heads = 0;
  std::vector<std::int32_t> qo_len;  // a request
  std::vector<std::int32_t> kv_len;
  std::vector<std::int32_t> qo_indptr;
  std::vector<std::int32_t> kv_indptr;      // paged: entries of page_indices; else tokens
  std::vector<std::int32_t> last_page_len;  // paged only
  std::vector<std::int32_t> page_indices;   // paged only
  std::int64_t pool_pages = 0;              // paged only
  std::vector<CaseLevel> levels;            // paged only
  std::vector<std::int32_t> kv_start;       // padded only: first token of a request in its slot
  std::int64_t kv_capacity = 0;             // padded only: tokens of a slot
  std::vector<std::int32_t> block_indptr;   // bsr only
  std::vector<std::int32_t> block_indices;  // bsr only
  std::optional<float> scale;               // nullopt: 1/sqrt(head_dim.qk)
  std::optional<int> window_left;           // where the spec says "runtime"
  std::vector<float> k_scale, v_scale;      // [1] or [kv_heads]; empty without kv_scale
  bool heads_first = false;                 // kv_order HND
  std::vector<std::vector<std::uint8_t>> custom_masks;  // a request, [qo_len][kv_len] of 0 and 1
  std::vector<ScalarParam> scalars;
  std::vector<CasePointerParam> pointers;
  CaseTensor q, k, v;  // k and v as a request reads them back from the cache
  CacheImage k_image, v_image;
  std::optional<CaseExpect> expect;

  int batch() const { return static_cast<int>(qo_len.size()); }
  std::int64_t qo_tokens() const { return qo_indptr.back(); }
  Workload workload() const;  // valid as long as this object
  // The custom masks as a kernel reads them: lowest bit of a byte first, each request from a byte
  // of its own.
  std::vector<std::byte> packed_masks() const;
};

struct CaseOptions {
  std::uint64_t page_seed = 0;  // of the shuffle, for a case that leaves "pages" out
  // false: for a plan alone. Inputs but for scalar params, scales of the cache and "expect" are
  // then neither looked at nor bounded, and pages that the case leaves out have no numbers.
  bool tensors = true;
};

// `directory` is where the case's .npy files are looked for. Errors: those of parse_spec;
// SPEC_UNSUPPORTED for a spec that no case can feed; WORKLOAD_INVALID and TENSOR_INVALID with the
// path in the case file, line, wanted and given.
Result<CaseFile> parse_case(std::string_view json, const std::string& directory,
                            const CaseOptions& options = {});

}  // namespace attnloom
