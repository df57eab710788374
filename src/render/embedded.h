// SPDX-License-Identifier: Apache-2.0
// kernel_templates/ as bytes inside the library; the table is generated at build by
// tools/embed.cmake, sorted by name, names relative to kernel_templates/. Immutable.
#pragma once

#include <span>
#include <string_view>

#include "base/embedded_file.h"

namespace attnloom {

std::span<const EmbeddedFile> embedded_files();

// The line in the repository's file of a line of the embedded text, which has no comments and blank
// lines; `line` itself where there is none. For messages only.
int embedded_source_line(std::string_view name, int line);

}  // namespace attnloom
