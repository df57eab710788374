// SPDX-License-Identifier: Apache-2.0
#include "python/core/staging.h"

#include <algorithm>
#include <cstring>

#include "python/core/dlpack.h"

namespace attnloom::python {
namespace {

constexpr std::uintptr_t kAlignment = 256;  // of what the simulator allocates

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// Elements from the first to behind the last; 0 where nothing can be staged: without elements, and
// with negative strides, which the library refuses by name.
std::int64_t reach_of(const alm_tensor& tensor) {
  std::int64_t reach = 1;
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] <= 0 || (tensor.shape[i] > 1 && tensor.strides[i] < 0)) return 0;
    if (tensor.shape[i] > 1) reach += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return reach;
}

// Copies the elements of `tensor` from an image of its memory and leaves the gaps between them
// alone: they are somebody else's. REQUIRES: reach_of(tensor) > 0.
void scatter(const alm_tensor& tensor, void* to, const std::byte* image) {
  const int bytes = bytes_of(tensor.dtype);
  const int last = tensor.rank - 1;
  const bool rows = tensor.rank > 0 && tensor.strides[last] == 1;
  const int outer = rows ? last : tensor.rank;
  const std::int64_t row_bytes = (rows ? tensor.shape[last] : 1) * bytes;
  std::int64_t index[5] = {};
  for (;;) {
    std::int64_t offset = 0;
    for (int i = 0; i < outer; ++i) offset += index[i] * tensor.strides[i];
    std::memcpy(static_cast<std::byte*>(to) + offset * bytes, image + offset * bytes,
                static_cast<std::size_t>(row_bytes));
    int i = outer - 1;
    while (i >= 0 && ++index[i] == tensor.shape[i]) index[i--] = 0;
    if (i < 0) return;
  }
}

}  // namespace

void Staging::add(alm_tensor* tensor, std::string label, bool is_output) {
  const std::int64_t reach = reach_of(*tensor);
  if (reach == 0) return;
  const std::uintptr_t begin = address_of(tensor->data);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(reach) *
                                         static_cast<std::uintptr_t>(bytes_of(tensor->dtype));
  parts_.push_back({tensor, std::move(label), is_output, begin, end});
}

void Staging::merge_ranges() {
  std::sort(parts_.begin(), parts_.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  for (Part& part : parts_) {
    if (ranges_.empty() || part.begin >= ranges_.back().end)
      ranges_.push_back({part.begin, part.end, part.label, std::nullopt});
    ranges_.back().end = std::max(ranges_.back().end, part.end);
    part.range = ranges_.size() - 1;
  }
}

void Staging::copy_in() {
  merge_ranges();
  for (Range& range : ranges_) {
    const std::size_t pad = range.begin % kAlignment;
    const std::size_t bytes = range.end - range.begin;
    range.memory.emplace(context_, pad + bytes, range.label.c_str());
    void* const to = static_cast<char*>(range.memory->address()) + pad;
    detail::check([&](alm_error** error) {
      return alm_memory_copy_in(context_, to, reinterpret_cast<const void*>(range.begin), bytes,
                                error);
    });
  }
  for (Part& part : parts_) {
    const Range& range = ranges_[part.range];
    part.tensor->data = static_cast<char*>(range.memory->address()) + range.begin % kAlignment +
                        (part.begin - range.begin);
  }
}

void Staging::copy_out() {
  std::vector<std::byte> image;
  for (const Part& part : parts_) {
    if (!part.is_output) continue;
    image.resize(part.end - part.begin);
    detail::check([&](alm_error** error) {
      return alm_memory_copy_out(context_, image.data(), part.tensor->data, image.size(), error);
    });
    scatter(*part.tensor, reinterpret_cast<void*>(part.begin), image.data());
  }
}

}  // namespace attnloom::python
