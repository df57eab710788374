// SPDX-License-Identifier: Apache-2.0
#include "compile/nvrtc_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/sha256.h"
#include "compile/elf.h"

namespace attnloom {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};  // newest first
constexpr const char* kDefaultFolder = "/usr/local/cuda/lib64";
constexpr const char* kWindow = "NVRTC 12.9 to 13.x is supported";
constexpr const char* kInstall =
    "install the nvidia-cuda-nvrtc wheel or a CUDA toolkit, or name the library";

bool in_window(int major, int minor) {
  return (major == 12 && minor >= 9) || major == 13;
}

std::string version_text(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string loader_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "the loader gives no reason" : text;
}

std::string path_of_handle(void* handle) {
  const link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr)
    return {};
  return map->l_name;
}

// The build-id, at the cost of two reads; the digest of the whole file where the linker wrote none.
Result<std::string> file_identity(const std::string& path) {
  if (const std::string id = read_build_id(path); !id.empty()) return "build-id:" + id;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || bytes.empty())
    return make_error(Code::kCompilerMissing, "", path + " cannot be read", kInstall);
  return "sha256:" + to_hex(sha256(bytes));
}

// NVRTC itself asks the loader for the bare name of its builtins, which finds another CUDA's or
// none. Loading the file that stands beside it first settles that request, by soname.
Result<std::string> open_builtins(const NvrtcLibrary& library) {
  const std::string name = "libnvrtc-builtins.so." + version_text(library.major, library.minor);
  const std::string path = (fs::path(library.path).parent_path() / name).string();
  const std::string loaded =
      library.path + " (NVRTC " + version_text(library.major, library.minor) + ")";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return make_error(Code::kCompilerMissing, "", loaded + " lacks " + name + " beside it",
                      kInstall);
  }
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) == nullptr) {
    return make_error(Code::kCompilerMissing, "",
                      loaded + " cannot load its builtins: " + loader_error(), kInstall);
  }
  return path;
}

Status bind_functions(void* handle, NvrtcLibrary& library) {
  NvrtcFunctions& call = library.call;
  std::string missing;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  bind(call.version, "nvrtcVersion");
  bind(call.error_string, "nvrtcGetErrorString");
  bind(call.num_supported_archs, "nvrtcGetNumSupportedArchs");
  bind(call.supported_archs, "nvrtcGetSupportedArchs");
  bind(call.create_program, "nvrtcCreateProgram");
  bind(call.destroy_program, "nvrtcDestroyProgram");
  bind(call.compile_program, "nvrtcCompileProgram");
  bind(call.cubin_size, "nvrtcGetCUBINSize");
  bind(call.cubin, "nvrtcGetCUBIN");
  bind(call.ptx_size, "nvrtcGetPTXSize");
  bind(call.ptx, "nvrtcGetPTX");
  bind(call.log_size, "nvrtcGetProgramLogSize");
  bind(call.log, "nvrtcGetProgramLog");
  call.set_flow_callback =
      reinterpret_cast<decltype(call.set_flow_callback)>(::dlsym(handle, "nvrtcSetFlowCallback"));
  if (missing.empty()) return ok_status();
  return make_error(Code::kCompilerMissing, "", library.path + " has no function " + missing,
                    kInstall);
}

Status read_identity(NvrtcLibrary& library) {
  ATTNLOOM_TRY(const std::string builtins, open_builtins(library));
  ATTNLOOM_TRY(const std::string library_id, file_identity(library.path));
  ATTNLOOM_TRY(const std::string builtins_id, file_identity(builtins));
  FieldHasher hasher("attnloom.toolchain.1");
  const Digest digest =
      hasher.field("libnvrtc", library_id).field("builtins", builtins_id).finish();
  library.fingerprint.hex = to_hex(digest).substr(0, 16);
  library.fingerprint.cuda_major = library.major;
  library.fingerprint.cuda_minor = library.minor;
  // Every driver of a CUDA major loads the cubins of all its minors.
  library.fingerprint.least_driver = library.major * 1000;
  return ok_status();
}

// `file` is a path, or a bare name for the loader's own search.
Result<NvrtcLibrary> open_file(const std::string& file) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return make_error(Code::kCompilerMissing, "", loader_error(), kInstall);
  NvrtcLibrary library;
  library.path = path_of_handle(handle);
  ATTNLOOM_CHECK(bind_functions(handle, library));
  if (library.call.version(&library.major, &library.minor) != 0) {
    return make_error(Code::kCompilerMissing, "", library.path + " does not tell its version",
                      kInstall);
  }
  if (!in_window(library.major, library.minor)) {
    return make_error(Code::kCompilerVersion, "",
                      library.path + " is NVRTC " + version_text(library.major, library.minor),
                      kWindow);
  }
  ATTNLOOM_CHECK(read_identity(library));
  int count = 0;
  if (library.call.num_supported_archs(&count) == 0 && count > 0) {
    library.archs.resize(static_cast<std::size_t>(count));
    if (library.call.supported_archs(library.archs.data()) != 0) library.archs.clear();
  }
  return library;
}

struct Place {
  std::string where;  // for the reader
  std::vector<std::string> files;
};

Place folder_place(const std::string& folder) {
  Place place{folder, {}};
  std::error_code ignored;
  for (const char* name : kFileNames) {
    const fs::path file = fs::path(folder) / name;
    if (fs::exists(file, ignored)) place.files.push_back(fs::absolute(file, ignored).string());
  }
  return place;
}

std::vector<Place> places_of(const NvrtcSearch& search) {
  std::error_code ignored;
  if (!search.path.empty()) {
    if (fs::is_directory(search.path, ignored)) return {folder_place(search.path)};
    return {{search.path, {fs::absolute(search.path, ignored).string()}}};
  }
  std::vector<Place> places;
  if (!search.beside.empty()) places.push_back(folder_place(search.beside));
  for (const std::string& folder : search.python_paths) {
    places.push_back(folder_place(folder + "/nvidia/cu13/lib"));
    places.push_back(folder_place(folder + "/nvidia/cuda_nvrtc/lib"));
  }
  if (!search.cuda_home.empty()) places.push_back(folder_place(search.cuda_home + "/lib64"));
  places.push_back({"the loader's search", {std::begin(kFileNames), std::end(kFileNames)}});
  places.push_back(folder_place(kDefaultFolder));
  return places;
}

}  // namespace

Result<NvrtcLibrary> open_nvrtc(const NvrtcSearch& search, std::vector<std::string>* tried) {
  Code code = Code::kCompilerMissing;
  std::string reasons;
  const auto note = [&](const std::string& line) {
    if (tried != nullptr) tried->push_back(line);
    reasons += (reasons.empty() ? "" : "; ") + line;
  };
  for (const Place& place : places_of(search)) {
    if (place.files.empty()) note(place.where + ": no libnvrtc.so.13 or libnvrtc.so.12");
    for (const std::string& file : place.files) {
      auto library = open_file(file);
      if (library.ok()) return library;
      note(place.where + ": " + library.status().cause);
      if (library.status().code == Code::kCompilerVersion) code = Code::kCompilerVersion;
    }
  }
  return make_error(code, "", "no usable NVRTC; tried " + reasons,
                    code == Code::kCompilerVersion ? kWindow : kInstall);
}

}  // namespace attnloom
