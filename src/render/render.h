// SPDX-License-Identifier: Apache-2.0
// Spec x KernelChoice -> Source. The rendered text is about 40 lines: named constants, the
// variant's functors under
// `#line n "variant.<field>"`, one include of the kernel's file. All choice is `if constexpr` in
// kernel_templates. Pure; thread-safe; independent of the locale.
#pragma once

#include "base/status.h"
#include "render/source.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

// REQUIRES: spec.target is set; check_spec(spec) passed; choice comes from kernel_set(spec) or
// step_down().
Result<Source> render(const Spec& spec, const KernelChoice& choice);

// The element functors of an attention spec alone, entry "functors" (functors.cuh): what judges a
// variant that has no float64 twin. REQUIRES: as render().
Result<Source> render_functors(const Spec& spec, const KernelChoice& choice);

// The digest of all embedded templates, for metadata and `explain`.
std::string template_set_digest();

}  // namespace attnloom
