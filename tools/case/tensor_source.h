// SPDX-License-Identifier: Apache-2.0
// The forms in which a case file writes a tensor: a number, a nested list, a generator, a .npy
// file. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "spec/types.h"
#include "tools/case/case_file.h"
#include "tools/case/json_node.h"

namespace attnloom {

// Of one tensor: past this a case is an error and not an attempt to allocate the machine's memory.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;

// The product of the extents; nullopt past kMaxElements.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> extents);

// All elements, row-major. Lists and files with fewer dimensions are broadcast from the left:
// [tokens] gives every head and dimension of a token the same value. `directory` is where .npy
// files are.
Result<std::vector<double>> expand_tensor(const JsonNode& node,
                                          std::span<const std::int64_t> extents,
                                          const std::string& directory);

// {"random": ..., "seed": ..., "scale": ...}; other keys are the caller's.
Result<std::vector<double>> generate_tensor(const JsonNode& node,
                                            std::span<const std::int64_t> extents);

// Rounds to the dtype, as reference::to_bits. Refuses a finite value that would become infinite and
// an infinity that would not stay one.
Result<CaseTensor> round_tensor(const JsonNode& node, const std::vector<double>& values,
                                std::span<const std::int64_t, 3> shape, DType dtype);

}  // namespace attnloom
