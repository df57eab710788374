// SPDX-License-Identifier: Apache-2.0
// The argument block of attention_wgmma: that of every attention kernel, and a tensor map each of
// queries, keys and values. Maps are made at each launch, as tensors may change from layer to
// layer; a captured launch keeps its own. Thread-safe; allocates only to report an error.
#pragma once

#include "base/status.h"
#include "kernel_templates/loom/plan.cuh"
#include "runtime/backend.h"
#include "runtime/launch.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

// Fills in the maps. REQUIRES: args.attention = attention_args(spec, .., tensors); `tile` is of
// attention_wgmma. Errors: those of Backend::encode_tensor_map, with the tensor's name before the
// path.
Status add_maps(Backend& device, const Spec& spec, const TileClass& tile,
                const AttentionTensors& tensors, loom::MappedAttentionArgs& args);

}  // namespace attnloom
