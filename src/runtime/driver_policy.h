// SPDX-License-Identifier: Apache-2.0
// Which driver can load which cubin, as a pure function of numbers: decided before the driver is
// asked, so that the error can say which driver is needed. Pure; thread-safe.
#pragma once

#include "base/status.h"
#include "compile/artifact.h"
#include "spec/types.h"

namespace attnloom {

// The library management calls (cuLibraryLoadData, CUkernel) came with CUDA 12.0.
inline constexpr int kLeastDriver = 12000;

// The least driver, as cuDriverGetVersion counts (13000), for a cubin of `target` made by
// `made_by`: CUDA's minor version compatibility lets a driver load any cubin of its own major, but
// a chip needs the release that introduced it.
int least_driver(const Fingerprint& made_by, const Target& target);

// DRIVER_TOO_OLD that names both versions, or success.
Status check_driver(int driver_version, const Fingerprint& made_by, const Target& target);

// Whether a cubin of `target` may be loaded on a chip of capability `device`: the same chip for
// 'a', the same family for 'f', else the same major and no newer minor.
bool cubin_fits(const Target& target, const Target& device);

std::string driver_version_text(int version);  // "13.0"

}  // namespace attnloom
