// SPDX-License-Identifier: Apache-2.0
#include "tools/case/pages.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "reference/generators.h"
#include "reference/number_format.h"
#include "tools/case/levels_section.h"
#include "tools/case/sparse_section.h"
#include "tools/case/tensor_source.h"

namespace attnloom {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kPageKeys[] = {"indptr", "indices", "last_page_len", "pool"};

// Refuses a pool whose caches no case could hold.
Status check_pool(const JsonNode& node, const CaseOptions& options, const CaseFile& file) {
  if (!options.tensors) return ok_status();
  const std::int64_t largest_dim = std::max(file.spec.head_dim.qk, file.spec.head_dim.vo);
  const std::int64_t extents[] = {file.pool_pages, file.spec.layout.page_size, file.kv_heads,
                                  largest_dim};
  if (element_count(extents)) return ok_status();
  return node.refuse("the pool of " + std::to_string(file.pool_pages) + " pages has more than " +
                         std::to_string(kMaxElements) + " elements",
                     "use fewer or smaller pages");
}

// Every request gets pages of its own from a shuffled pool with one page to spare: a kernel that
// reads past a page table, or takes page numbers for granted, meets a NaN or another request.
Status deal_pages(const JsonNode& workload, const CaseOptions& options, CaseFile& file) {
  const std::int64_t page_size = file.spec.layout.page_size;
  std::int64_t total = 0;
  file.kv_indptr = {0};
  for (const std::int32_t tokens : file.kv_len) {
    const std::int64_t pages = (tokens + page_size - 1) / page_size;
    total += pages;
    file.kv_indptr.push_back(static_cast<std::int32_t>(total));  // no more than the tokens: fits
    const std::int64_t last = tokens - (pages - 1) * page_size;
    file.last_page_len.push_back(pages == 0 ? 0 : static_cast<std::int32_t>(last));
  }
  if (!options.tensors) return ok_status();
  if (total >= kMaxInt32) return workload.refuse("the requests need more pages than int32 counts");
  file.pool_pages = total + 1;
  ATTNLOOM_CHECK(check_pool(workload, options, file));  // 2^31 pages take seconds to deal
  std::vector<std::int32_t> pool(static_cast<std::size_t>(file.pool_pages));
  std::iota(pool.begin(), pool.end(), 0);
  for (std::size_t i = pool.size() - 1; i > 0; --i) {
    std::swap(pool[i], pool[reference::random_bits(options.page_seed, i) % (i + 1)]);
  }
  pool.resize(static_cast<std::size_t>(total));
  file.page_indices = std::move(pool);
  return ok_status();
}

Status check_indptr(const JsonNode& node, const std::vector<std::int32_t>& indptr, int batch) {
  if (std::ssize(indptr) != batch + 1) {
    return node.refuse("wanted " + std::to_string(batch + 1) +
                       " entries, one more than requests, given " + std::to_string(indptr.size()));
  }
  if (indptr[0] != 0) return node.refuse("wanted 0 first, given " + std::to_string(indptr[0]));
  const auto falls = std::is_sorted_until(indptr.begin(), indptr.end());
  if (falls == indptr.end()) return ok_status();
  return node.refuse("request " + std::to_string(falls - indptr.begin() - 1) +
                     ": wanted at least " + std::to_string(*(falls - 1)) + ", given " +
                     std::to_string(*falls));
}

// The pages and the length of the last one must say what kv_len says.
Status check_request(const JsonNode& pages, const CaseFile& file, int request) {
  const auto r = static_cast<std::size_t>(request);
  const std::int64_t page_size = file.spec.layout.page_size;
  const std::int64_t count = file.kv_indptr[r + 1] - file.kv_indptr[r];
  const std::int64_t last = file.last_page_len[r];
  const std::string who = "request " + std::to_string(r) + ": ";
  if (count == 0 ? last != 0 : last < 1 || last > page_size) {
    return pages.refuse(who + "wanted last_page_len " +
                        (count == 0 ? "0 without a page" : "1 to " + std::to_string(page_size)) +
                        ", given " + std::to_string(last));
  }
  const std::int64_t tokens = count == 0 ? 0 : (count - 1) * page_size + last;
  if (tokens == file.kv_len[r]) return ok_status();
  return pages.refuse(who + "wanted kv_len " + std::to_string(file.kv_len[r]) + " tokens, given " +
                      std::to_string(count) + " pages with " + std::to_string(tokens));
}

Status check_indices(const JsonNode& node, const CaseFile& file) {
  if (std::ssize(file.page_indices) < file.kv_indptr.back()) {
    return node.refuse("wanted " + std::to_string(file.kv_indptr.back()) +
                       " entries, as indptr says, given " +
                       std::to_string(file.page_indices.size()));
  }
  ATTNLOOM_TRY(const std::vector<JsonNode> entries, node.elements());
  for (int r = 0; r < file.batch(); ++r) {
    for (std::int32_t i = file.kv_indptr[r]; i < file.kv_indptr[r + 1]; ++i) {
      const std::int32_t page = file.page_indices[static_cast<std::size_t>(i)];
      if (page >= 0 && page < file.pool_pages) continue;
      return entries[static_cast<std::size_t>(i)].refuse(
          "request " + std::to_string(r) + ": wanted a page from 0 to " +
          std::to_string(file.pool_pages - 1) + ", given " + std::to_string(page));
    }
  }
  return ok_status();
}

Status read_given_pages(const JsonNode& pages, const CaseOptions& options, CaseFile& file) {
  ATTNLOOM_CHECK(pages.check_keys(kPageKeys));
  ATTNLOOM_TRY(const JsonNode indptr, pages.member("indptr"));
  ATTNLOOM_TRY(const JsonNode indices, pages.member("indices"));
  ATTNLOOM_TRY(const JsonNode last_page_len, pages.member("last_page_len"));
  ATTNLOOM_TRY(const JsonNode pool, pages.member("pool"));
  ATTNLOOM_TRY(file.kv_indptr, indptr.int32s());
  // Entries behind the last one in use may hold anything; engines pad with -1.
  ATTNLOOM_TRY(file.page_indices, indices.int32s(std::numeric_limits<std::int32_t>::min()));
  ATTNLOOM_TRY(file.last_page_len, last_page_len.int32s());
  ATTNLOOM_TRY(file.pool_pages, pool.integer(1, kMaxInt32));
  ATTNLOOM_CHECK(check_pool(pool, options, file));
  ATTNLOOM_CHECK(check_indptr(indptr, file.kv_indptr, file.batch()));
  if (file.last_page_len.size() != file.qo_len.size()) {
    return last_page_len.refuse("wanted " + std::to_string(file.qo_len.size()) +
                                " entries, one a request, given " +
                                std::to_string(file.last_page_len.size()));
  }
  for (int r = 0; r < file.batch(); ++r) ATTNLOOM_CHECK(check_request(pages, file, r));
  return check_indices(indices, file);
}

// A padded cache is scattered as pages, one a request.
struct PageShape {
  std::int64_t pages = 1;
  std::int64_t tokens = 1;
  bool given = true;  // false: one run of tokens
};

PageShape page_shape(const CaseFile& file) {
  if (file.spec.layout.kv == KvLayout::kPaged) return {file.pool_pages, file.spec.layout.page_size};
  if (file.spec.layout.kv == KvLayout::kPadded) return {file.batch(), file.kv_capacity};
  return {.given = false};
}

// The place of every KV token, numbered page by page.
std::vector<std::int64_t> slots_of_tokens(const CaseFile& file) {
  std::vector<std::int64_t> slots;
  const KvLayout layout = file.spec.layout.kv;
  const std::int64_t page_size = page_shape(file).tokens;
  for (std::size_t r = 0; r < file.kv_len.size(); ++r) {
    for (std::int64_t token = 0; token < file.kv_len[r]; ++token) {
      if (layout == KvLayout::kPadded) {
        slots.push_back(static_cast<std::int64_t>(r) * page_size + file.kv_start[r] + token);
        continue;
      }
      if (layout != KvLayout::kPaged) {
        slots.push_back(std::ssize(slots));
        continue;
      }
      const auto entry = static_cast<std::size_t>(file.kv_indptr[r] + token / page_size);
      slots.push_back(file.page_indices[entry] * page_size + token % page_size);
    }
  }
  return slots;
}

std::size_t elements_of_token(const CaseTensor& tensor) {
  return static_cast<std::size_t>(tensor.shape[1] * tensor.shape[2]);
}

void copy_token(CaseTensor& tensor, std::int64_t from, std::int64_t to) {
  const std::size_t count = elements_of_token(tensor);
  const auto source = static_cast<std::size_t>(from) * count;
  const auto target = static_cast<std::size_t>(to) * count;
  std::copy_n(&tensor.bits[source], count, &tensor.bits[target]);
  std::copy_n(&tensor.values[source], count, &tensor.values[target]);
}

// `to` has room for the elements in the cache's dtype.
void write_elements(std::byte* to, std::span<const std::uint16_t> elements, DType dtype) {
  if (bytes_of(dtype) == 2) {
    std::memcpy(to, elements.data(), elements.size_bytes());
    return;
  }
  std::transform(elements.begin(), elements.end(), to,
                 [](std::uint16_t bits) { return static_cast<std::byte>(bits); });
}

CacheImage empty_image(const CaseFile& file, const CaseTensor& tensor) {
  CacheImage image;
  const std::int64_t heads = tensor.shape[1];
  const std::int64_t dim = tensor.shape[2];
  const PageShape page = page_shape(file);
  const std::int64_t pages = page.pages;
  const std::int64_t tokens = page.given ? page.tokens : tensor.shape[0];  // of a page
  const std::int64_t token_stride = file.heads_first ? dim : heads * dim;
  const std::int64_t head_stride = file.heads_first ? tokens * dim : dim;
  const std::int64_t shape[] = {pages, tokens, heads, dim};
  const std::int64_t strides[] = {tokens * heads * dim, token_stride, head_stride, 1};
  image.rank = page.given ? 4 : 3;
  std::copy_n(shape + (4 - image.rank), image.rank, image.shape);
  std::copy_n(strides + (4 - image.rank), image.rank, image.strides);
  const std::uint16_t nan =
      reference::to_bits(std::numeric_limits<double>::quiet_NaN(), file.spec.dtype.kv);
  const std::vector<std::uint16_t> elements(static_cast<std::size_t>(pages * tokens * heads * dim),
                                            nan);
  image.bytes.resize(elements.size() * static_cast<std::size_t>(bytes_of(file.spec.dtype.kv)));
  if (!elements.empty()) write_elements(image.bytes.data(), elements, file.spec.dtype.kv);
  return image;
}

CacheImage scatter(const CaseFile& file, const CaseTensor& tensor,
                   const std::vector<std::int64_t>& slots) {
  CacheImage image = empty_image(file, tensor);
  const bool paged = image.rank == 4;
  const std::int64_t page_size = paged ? image.shape[1] : 1;
  const std::int64_t* of_page = image.strides;  // paged only
  const std::int64_t token_stride = image.strides[image.rank - 3];
  const std::int64_t head_stride = image.strides[image.rank - 2];
  const std::int64_t heads = tensor.shape[1];
  const std::int64_t dim = tensor.shape[2];
  for (std::int64_t token = 0; token < tensor.shape[0]; ++token) {
    const std::int64_t slot = slots[static_cast<std::size_t>(token)];
    const std::int64_t start = paged
                                   ? slot / page_size * of_page[0] + slot % page_size * token_stride
                                   : slot * token_stride;
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::uint16_t* row =
          &tensor.bits[static_cast<std::size_t>((token * heads + head) * dim)];
      write_elements(
          image.bytes.data() + (start + head * head_stride) * bytes_of(file.spec.dtype.kv),
          {row, static_cast<std::size_t>(dim)}, file.spec.dtype.kv);
    }
  }
  return image;
}

}  // namespace

Status read_layout(const JsonNode& workload, const CaseOptions& options, CaseFile& file) {
  struct Section {
    std::string_view key;
    KvLayout layout;
  };
  constexpr Section kSections[] = {{"pages", KvLayout::kPaged},
                                   {"levels", KvLayout::kPaged},
                                   {"padded", KvLayout::kPadded},
                                   {"bsr", KvLayout::kBsr}};
  for (const Section& section : kSections) {
    if (file.spec.layout.kv == section.layout || !workload.has(section.key)) continue;
    ATTNLOOM_TRY(const JsonNode other, workload.member(section.key));
    return other.refuse(
        "the spec's layout.kv is not \"" + std::string(json_name(section.layout)) + "\"",
        "remove it");
  }
  switch (file.spec.layout.kv) {
    case KvLayout::kRagged:
      return ok_status();
    case KvLayout::kPadded:
      return read_padded(workload, options, file);
    case KvLayout::kBsr:
      return read_block_rows(workload, file);
    case KvLayout::kPaged:
      break;
  }
  const bool given = workload.has("pages");
  if (given) {
    ATTNLOOM_TRY(const JsonNode pages, workload.member("pages"));
    ATTNLOOM_CHECK(read_given_pages(pages, options, file));
  }
  if (!workload.has("levels")) return given ? ok_status() : deal_pages(workload, options, file);
  ATTNLOOM_TRY(const JsonNode levels, workload.member("levels"));
  ATTNLOOM_CHECK(read_levels(levels, given, file));
  return check_pool(levels, options, file);
}

Status fill_cache(CaseFile& file) {
  const std::vector<std::int64_t> slots = slots_of_tokens(file);
  if (file.spec.layout.kv == KvLayout::kPaged) {
    std::vector<std::int64_t> owner(
        static_cast<std::size_t>(file.pool_pages * file.spec.layout.page_size), -1);
    for (std::int64_t token = 0; token < std::ssize(slots); ++token) {
      std::int64_t& first = owner[static_cast<std::size_t>(slots[static_cast<std::size_t>(token)])];
      if (first < 0) {
        first = token;
        continue;
      }
      copy_token(file.k, first, token);
      copy_token(file.v, first, token);
    }
  }
  file.k_image = scatter(file, file.k, slots);
  file.v_image = scatter(file, file.v, slots);
  return ok_status();
}

}  // namespace attnloom
