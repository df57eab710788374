// SPDX-License-Identifier: Apache-2.0
// TOOLCHAINS: the compilers whose entries a root or bundle holds, so that a look-up needs no
// compiler:
//
//   attnloom-toolchains 1
//   FINGERPRINT CUDA_MAJOR.CUDA_MINOR LEAST_DRIVER       one a line, newest CUDA first
//
// Lines that cannot be read are skipped (a later version may add kinds of lines). Thread-safe: pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/artifact.h"

namespace attnloom {

std::vector<Fingerprint> parse_toolchains(std::string_view text);
std::string print_toolchains(const std::vector<Fingerprint>& list);

// Puts `added` before the first of the same or an older CUDA. False when it is there already.
bool add_toolchain(std::vector<Fingerprint>& list, const Fingerprint& added);

}  // namespace attnloom
