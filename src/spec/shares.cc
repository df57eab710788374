// SPDX-License-Identifier: Apache-2.0
#include "spec/shares.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string_view>

namespace attnloom {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool names(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end])))
      return true;
  }
  return false;
}

bool names_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [text](std::string_view word) { return names(text, word); });
}

// "batch", "q_len" and "kv_len" are also the fields of a row functor's argument.
bool is_of_a_request(std::string_view text) {
  return !text.empty() &&
         names_any(text, {"batch", "q_len", "kv_len", "q_pos", "q_pos_begin", "q_pos_end"});
}

}  // namespace

bool may_share_prefixes(const Spec& spec) {
  const Variant& variant = spec.variant;
  if (spec.kernel != KernelKind::kAttention || spec.layout.kv != KvLayout::kPaged ||
      variant.mask.custom || variant.mask.window_left != std::optional<int>(-1))
    return false;
  const std::string_view texts[] = {
      variant.prelude,         variant.logits_transform, variant.logits_mask,    variant.tile_mask,
      variant.query_transform, variant.key_transform,    variant.value_transform};
  return std::none_of(std::begin(texts), std::end(texts), is_of_a_request);
}

}  // namespace attnloom
