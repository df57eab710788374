// SPDX-License-Identifier: Apache-2.0
#include "runtime/mapped_launch.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace attnloom {
namespace {

constexpr std::uint32_t kBoxColumns = 64;  // of 16 bits: the width of the swizzle
constexpr int kElementBytes = 2;
constexpr std::uint64_t kNoStride = 16;  // bytes, of a dimension that has one place

struct Dimension {
  std::int64_t places = 1;
  std::int64_t stride = 0;  // elements
  std::uint32_t box = 1;
};

// A tensor without elements may have no address: nobody uses what its map's one row in the
// workspace holds.
Result<TensorMap> encode(Backend& device, const char* name, const TensorView& tensor,
                         DeviceAddress workspace, const Dimension (&dimensions)[3]) {
  const std::int64_t* end = tensor.shape + tensor.rank;
  const bool empty = std::find(tensor.shape, end, 0) != end;
  TensorMapShape shape;
  shape.address = empty ? workspace : tensor.data;
  shape.element_bytes = kElementBytes;
  shape.rank = 4;
  shape.swizzle = TensorSwizzle::k128;
  shape.dims[0] = static_cast<std::uint64_t>(end[-1]);
  shape.box[0] = kBoxColumns;
  for (std::size_t k = 0; k < 3; ++k) {
    const Dimension& one = dimensions[k];
    shape.dims[k + 1] = empty ? 1 : static_cast<std::uint64_t>(one.places);
    shape.stride_bytes[k] =
        shape.dims[k + 1] > 1 ? static_cast<std::uint64_t>(one.stride) * kElementBytes : kNoStride;
    shape.box[k + 1] = one.box;
  }
  Result<TensorMap> map = device.encode_tensor_map(shape);
  if (map.ok()) return map;
  Status status = map.status();
  status.path = std::string("tensors.") + name + (status.path.empty() ? "" : "." + status.path);
  return status;
}

Result<TensorMap> query_map(Backend& device, const Spec& spec, const TileClass& tile,
                            const AttentionTensors& tensors) {
  const TensorView& q = tensors.q;
  const int group = spec.group_size;
  const Dimension dimensions[3] = {
      {group, q.strides[1], static_cast<std::uint32_t>(group)},
      {q.shape[1] / group, group * q.strides[1], 1},
      {q.shape[0], q.strides[0], static_cast<std::uint32_t>(tile.q / group)}};
  return encode(device, "q", q, tensors.workspace, dimensions);
}

// Of keys or values: a box is a whole tile, or a page where a tile has several.
Result<TensorMap> key_map(Backend& device, const char* name, const Spec& spec,
                          const TileClass& tile, const TensorView& tensor,
                          DeviceAddress workspace) {
  const bool paged = spec.layout.kv == KvLayout::kPaged;
  const int rows = paged ? std::min(tile.kv, spec.layout.page_size) : tile.kv;
  const int first = tensor.rank - 3;  // dimension of the tokens; before it that of the pages
  const Dimension dimensions[3] = {
      {tensor.shape[first], tensor.strides[first], static_cast<std::uint32_t>(rows)},
      {tensor.shape[first + 1], tensor.strides[first + 1], 1},
      first == 0 ? Dimension{} : Dimension{tensor.shape[0], tensor.strides[0], 1}};
  return encode(device, name, tensor, workspace, dimensions);
}

void set(loom::MapBytes& to, const TensorMap& from) {
  static_assert(sizeof(to.bytes) == kTensorMapBytes);
  std::memcpy(to.bytes, from.bytes.data(), kTensorMapBytes);
}

}  // namespace

Status add_maps(Backend& device, const Spec& spec, const TileClass& tile,
                const AttentionTensors& tensors, loom::MappedAttentionArgs& args) {
  ATTNLOOM_TRY(const TensorMap q, query_map(device, spec, tile, tensors));
  ATTNLOOM_TRY(const TensorMap k, key_map(device, "k", spec, tile, tensors.k, tensors.workspace));
  ATTNLOOM_TRY(const TensorMap v, key_map(device, "v", spec, tile, tensors.v, tensors.workspace));
  set(args.q, q);
  set(args.k, k);
  set(args.v, v);
  return ok_status();
}

}  // namespace attnloom
