// SPDX-License-Identifier: Apache-2.0
// The one hash. Fed with named, length-prefixed fields, so that two different lists of fields never
// hash alike
// ("-I-O2" against "-I", "-O2"). Not thread-safe per object; cheap to make.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace attnloom {

using Digest = std::array<std::uint8_t, 32>;

std::string to_hex(std::span<const std::uint8_t> bytes);  // lower case
Digest sha256(std::string_view bytes);

class FieldHasher {
 public:
  // `domain` separates uses: "attnloom.request.1".
  explicit FieldHasher(std::string_view domain);
  ~FieldHasher();
  FieldHasher(const FieldHasher&) = delete;
  FieldHasher& operator=(const FieldHasher&) = delete;

  FieldHasher& field(std::string_view name, std::string_view bytes);
  Digest finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnloom
