// SPDX-License-Identifier: Apache-2.0
// What may stand in a functor's text and in a name. Functor text is code and is trusted to be what
// its author wants; these checks keep it inside its function body (balanced braces, no
// preprocessor) and keep the rendered program a function of the spec alone (no file, date or
// include reaches it). Pure; thread-safe.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/status.h"

namespace attnloom {

inline constexpr int kMaxFunctorBytes = 64 * 1024;
// The compiler's parser recurses at each of these and NVRTC runs inside the host's process, where a
// full stack is a crash and no error.
inline constexpr int kMaxBracketDepth = 256;
inline constexpr int kMaxPrefixRun = 64;

// The identifiers of a text that passed.
struct FunctorTokens {
  std::set<std::string, std::less<>> identifiers;
};

// Refuses, with line and column inside the text: preprocessor directives in either spelling other
// than
// `#pragma unroll`, _Pragma, __has_include and its kin, line splices, trigraphs, digraphs,
// unbalanced () [] {}, brackets and runs of prefix operators over their limits, comments and
// literals that do not end, control characters, characters outside ASCII other than in comments and
// literals, a text without a token, a text over 64 KB. `path` is the field's own.
Result<FunctorTokens> scan_functor(std::string_view text, const std::string& path);

// A name that is safe in a program: [A-Za-z_][A-Za-z0-9_]{0,63} and no C++ keyword.
Status check_name(std::string_view name, const std::string& path);

// The same for a param, which functors use as an identifier: no argument of a functor, nothing that
// the rendered program or the compiler defines.
Status check_param_name(std::string_view name, const std::string& path);

}  // namespace attnloom
