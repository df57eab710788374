// SPDX-License-Identifier: Apache-2.0
// The front end quotes the lines it complains about, of whatever file they are: a text that gets a
// file of the machine included would read it in the error message. Pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnloom {

// `log` without what the front end says about files that are neither among `own` nor a functor
// ("variant.x"). A line tells that something was left out.
std::string without_foreign_text(std::string_view log, const std::vector<std::string_view>& own);

}  // namespace attnloom
