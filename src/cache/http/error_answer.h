// SPDX-License-Identifier: Apache-2.0
// The error that a compile service answers with, as JSON. Pure; thread-safe.
#pragma once

#include <string_view>

#include "base/status.h"

namespace attnloom::http {

// {"code": ..., "path": ..., "cause": ..., "remedy": ...}; REMOTE for anything else. Texts are cut
// to 2000 bytes and have no control characters: they go into logs.
Status read_error_answer(std::string_view body);

}  // namespace attnloom::http
